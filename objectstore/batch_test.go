package objectstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// write puts or deletes a few rows, in the batch and in the model.
func (s state) write(t *rapid.T, batch *Batch, what string) {
	n := rapid.IntRange(0, 12).Draw(t, what)
	for range n {
		key := anyKey.Draw(t, "key")
		var err error
		if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
			delete(s.rows, "k"+key)
			err = batch.Delete(SpaceKV, []byte(key), false)
		} else {
			s.rows["k"+key] = what + values.Draw(t, "value")
			err = batch.Put(SpaceKV, []byte(key), []byte(s.rows["k"+key]), false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "clear") == 0 {
		clear(s.rows)
		if err := batch.DeleteAll(); err != nil {
			t.Fatal(err)
		}
	}
}

func bounds() *rapid.Generator[Bounds] {
	return rapid.Custom(func(t *rapid.T) Bounds {
		bound := func(name string, chance int) []byte {
			if rapid.IntRange(0, chance).Draw(t, "has "+name) > 0 {
				return nil
			}
			return []byte(anyKey.Draw(t, name))
		}
		b := Bounds{Space: SpaceKV, Prefix: bound("prefix", 2), End: bound("end", 2)}
		if rapid.Bool().Draw(t, "exclusive") {
			b.After = bound("after", 1)
		} else {
			b.Start = bound("start", 1)
		}
		b.Reverse = rapid.Bool().Draw(t, "reverse")
		b.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
		return b
	})
}

// TestScanModel compares scans over four layers with a plain search.
func TestScanModel(t *testing.T) {
	keepAllWalks(t)
	s := open(t, NewMemFS(), Options{})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		o := s.live("c", fmt.Sprint(n))
		want := state{rows: map[string]string{}}
		want.write(t, o.Batch, "durable")
		o.commit(t)
		below := o.NewBatch(o.e)
		want.write(t, below, "in flight")
		above := o.NewBatch(o.e)
		want.write(t, above, "filling")
		o.mu.Lock()
		o.inflight, o.filling = below.g, above.g
		o.mu.Unlock()
		for range 2 {
			want.write(t, o.Batch, "batch")
			for range 5 {
				b := bounds().Draw(t, "bounds")
				got, err := collect(o.Scan(b))
				if want := want.scan(b); err != nil || !slices.Equal(got, want) {
					t.Fatalf("Scan(%+v) = %q, %v; want %q", b, got, err, want)
				}
			}
		}
	})
}

// TestSavepoints rolls a batch back at random, with scans in between. The order of the rows must survive too.
func TestSavepoints(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	rapid.Check(t, func(t *rapid.T) {
		o := s.live("c", "a")
		type mark struct {
			point Savepoint
			rows  map[string]string
			outs  int
		}
		now := state{rows: map[string]string{}}
		outs := 0
		var marks []mark
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) { now.write(t, o.Batch, "v") },
			"emit":  func(*rapid.T) { o.Emit(newReleased()); outs++ },
			"begin": func(*rapid.T) {
				marks = append(marks, mark{o.Batch.Begin(), maps.Clone(now.rows), outs})
			},
			"rollback": func(t *rapid.T) {
				if len(marks) == 0 {
					t.Skip("no savepoint")
				}
				i := rapid.IntRange(0, len(marks)-1).Draw(t, "mark")
				if dropped := o.Rollback(marks[i].point); len(dropped) != outs-marks[i].outs {
					t.Fatalf("%d outputs came back, want %d", len(dropped), outs-marks[i].outs)
				}
				now.rows, outs = marks[i].rows, marks[i].outs
				marks = marks[:i]
			},
			"end": func(t *rapid.T) {
				if len(marks) == 0 {
					t.Skip("no savepoint")
				}
				i := rapid.IntRange(0, len(marks)-1).Draw(t, "mark")
				o.End(marks[i].point)
				marks = marks[:i]
			},
			"": func(t *rapid.T) {
				if len(marks) == 0 && len(o.saves.undo) > 0 {
					t.Fatalf("%d undos without a savepoint", len(o.saves.undo))
				}
				bytes := 0
				for i := range o.saves.undo {
					bytes += o.saves.undo[i].bytes()
				}
				if bytes != o.saves.bytes {
					t.Fatalf("undos of %d bytes count %d", bytes, o.saves.bytes)
				}
				got, err := collect(o.Scan(Bounds{Space: SpaceKV}))
				if want := now.scan(Bounds{Space: SpaceKV}); err != nil || !slices.Equal(got, want) {
					t.Fatalf("rows %q, %v; want %q", got, err, want)
				}
				for k, want := range now.rows {
					v, ok, err := o.Get(nil, SpaceKV, []byte(k[1:]))
					if err != nil || !ok || string(v) != want {
						t.Fatalf("Get(%q) = %q, %v, %v; want %q", k, v, ok, err, want)
					}
				}
			},
		})
		if left := o.Discard(); len(left) != outs {
			t.Fatalf("the batch had %d outputs, want %d", len(left), outs)
		}
		if !o.Batch.Empty() || o.Bytes() != 0 {
			t.Fatal("not empty after Discard")
		}
		for _, m := range marks {
			if o.Rollback(m.point) != nil || o.Dirty() {
				t.Fatal("a savepoint outlived its batch")
			}
		}
	})
}
