package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/errkind"
)

// replace replaces the state of an object by that of a moment. It returns the bookmark of the record before.
func (l live) replace(t failer, s *Store, to RestorePoint) (before Bookmark) {
	t.Helper()
	st, err := s.ArchivedState(context.Background(), l.id, to)
	if err != nil {
		t.Fatal(err)
	}
	if before, err = s.Bookmark(); err != nil {
		t.Fatal(err)
	}
	if err := l.Replace(context.Background(), st); err != nil {
		t.Fatal(err)
	}
	l.commit(t)
	return before
}

// comparable returns the rows of an object without the parts that a replacement draws anew: of the alarm only the time stays, and
// the header of the feed is left out.
func comparable(t *testing.T, rows map[string]string) map[string]string {
	t.Helper()
	rows = maps.Clone(rows)
	delete(rows, "cflog\x00")
	if v, ok := rows["ms"]; ok {
		slot, err := decodeSlot([]byte(v))
		if err != nil {
			t.Fatal(err)
		}
		rows["ms"] = slot.Due.String()
	}
	return rows
}

// TestReplacementHasTheStateOfEachRecord replaces objects by their states after earlier records, at random.
func TestReplacementHasTheStateOfEachRecord(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, fsys, a := newArchivedModel(t, 100+seed), NewMemFS(), newMemArchive()
				s := shipTo(t, fsys, a, func(sh *Shipping) { sh.part, sh.shipment, sh.BaseAfter = 5000, 2000, 20000 })
				m.open(s)
				time.Sleep(2 * time.Second) // the first base
				first := s.Stats().Ship.Record
				m.keep()
				absent := 0
				for range 25 {
					for range 3 {
						m.step()
					}
					id := neighbours[m.rnd.IntN(len(neighbours))]
					numbers := slices.DeleteFunc(slices.Sorted(maps.Keys(m.at)), func(n uint64) bool { return n < first })
					number := numbers[m.rnd.IntN(len(numbers))]
					now, then := m.at[s.Stats().Ship.Record][id], m.at[number][id]
					before := m.live[id].replace(t, s, RestorePoint{Record: number})
					m.kv[id], m.rows[id] = maps.Clone(then.kv), maps.Clone(then.rows)
					if delete(m.due, id); then.due != 0 {
						m.due[id] = then.due
					}
					m.keep()
					m.want(s.Stats().Ship.Record, id, objectRows(rowsOf(t, s), id))
					if got := objectRows(rowsOf(t, s), id); !maps.Equal(comparable(t, got), comparable(t, then.stored)) {
						t.Errorf("%v replaced as of record %d: %q, want %q", id, number, got, then.stored)
					}
					if then.stored == nil {
						absent++
					}
					if slot, ok, err := s.snapshot(t).Slot(id); ok {
						old, _ := decodeSlot([]byte(then.stored["ms"]))
						if err != nil || slot.Generation <= old.Generation || slot.First != old.Setting() {
							t.Errorf("the alarm %+v became %+v, %v", old, slot, err)
						}
					}
					wantConsistent(t, s)
					time.Sleep(2 * time.Second)
					if got := exportArchived(t, a, id, RestorePoint{Bookmark: before}); !maps.Equal(got, now.stored) {
						t.Errorf("%v as of the bookmark before: %q, want %q", id, got, now.stored)
					}
				}
				if absent == 0 {
					t.Error("no replacement by an absent object was tried")
				}
				s.Abandon()
			})
		})
	}
}

// TestReplacementIsWholeOrNotAtAllWhereverThePowerFails cuts the power before each write of a replacement.
func TestReplacementIsWholeOrNotAtAllWhereverThePowerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := NewMemFS()
		a, err := OpenDirArchive(fsys, archiveDir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, &Options{FS: fsys, Ship: &Shipping{Archive: a, Context: context.Background()}})
		if err != nil {
			t.Fatal(err)
		}
		o, other := s.live("c", "a"), s.live("c", "ab")
		fill := func(generation string, rows int) {
			for i := range rows {
				o.put(t, fmt.Sprint(generation, i), strings.Repeat(generation, 3000))
			}
			o.putRow(t, modelCollection, "row "+generation, "x", "by="+generation)
			o.SetSlot(Slot{Due: due(int64(1000 * rows)), Generation: s.NewAlarmGeneration(), AtStart: rows > 9})
			o.commit(t)
		}
		other.put(t, "n", "1")
		other.commit(t)
		fill("old", 10)
		of := func(s *Store, name string) map[string]string {
			return comparable(t, objectRows(rowsOf(t, s), ID{"c", name}))
		}
		time.Sleep(2 * time.Second)
		wanted, bookmark := of(s, "a"), s.Stats().Ship.Record
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		fill("new", 7)
		present, neighbour := of(s, "a"), of(s, "ab")
		var done atomic.Bool
		images := imagesOf(fsys, func() []int64 {
			if done.Load() {
				return []int64{1}
			}
			return nil
		}, func() {
			o.replace(t, s, RestorePoint{Record: bookmark})
			done.Store(true)
			time.Sleep(3 * time.Second)
			s.Abandon()
		})
		replaced, kept, scratch := 0, 0, 0
		everyPoint(t, images, 1, func(im shipImage) {
			if names, _ := im.fs.base.List(dir); slices.Contains(names, scratchName) {
				scratch++
			}
			s := openAt(t, im, dir, nil)
			switch got := of(s, "a"); {
			case maps.Equal(got, wanted):
				replaced++
			case maps.Equal(got, present) && im.acked == nil:
				kept++
			default:
				t.Errorf("%s, acknowledged %t: the object has %q", im.at, im.acked != nil, got)
			}
			if got := of(s, "ab"); !maps.Equal(got, neighbour) {
				t.Errorf("%s: the other object has %q", im.at, got)
			}
			wantConsistent(t, s)
			if names, _ := im.fs.base.List(dir); slices.Contains(names, scratchName) {
				t.Errorf("%s: the scratch directory is still there", im.at)
			}
			s.Abandon()
		})
		if replaced < 10 || kept < 10 || scratch < 10 {
			t.Errorf("%d images with the replacement, %d without, %d with a scratch directory", replaced, kept, scratch)
		}
	})
}

// TestReplacementResetsReadersOfAFeed reads a feed from positions of before a replacement.
func TestReplacementResetsReadersOfAFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shipTo(t, NewMemFS(), newMemArchive())
		defer s.Abandon()
		o, c := s.live("c", "a"), &Collection{Name: "rows", Feed: Feed{Name: "log"}}
		end := func() Position {
			t.Helper()
			_, end, err := o.FeedEnds("log")
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		put := func(key string) {
			o.putRow(t, c, key, "x")
			o.commit(t)
		}
		time.Sleep(2 * time.Second)
		put("1")
		put("2")
		kept, bookmark := end(), RestorePoint{Record: s.Stats().Ship.Record}
		put("3")
		put("4")
		lost := end()
		undo := o.replace(t, s, bookmark)
		reads := func(when string, at Position, want int, reset bool) {
			t.Helper()
			changes, err := o.ReadFeed("log", at, 10, 0)
			var e *FeedError
			if errors.As(err, &e) != reset || reset && !e.Reset || !reset && err != nil || len(changes) != want {
				t.Errorf("%s, after entry %d: %d entries, %v; want %d, reset %t", when, at.Offset, len(changes), err, want, reset)
			}
		}
		reads("after the replacement", kept, 0, false)
		reads("after the replacement", lost, 0, true)
		for _, key := range []string{"5", "6", "7"} {
			put(key)
		}
		reads("with other entries", kept, 3, false)
		reads("with other entries", lost, 0, true)
		other := end()
		time.Sleep(2 * time.Second)
		o.replace(t, s, RestorePoint{Bookmark: undo})
		reads("after the undo", kept, 2, false)
		reads("after the undo", lost, 0, false)
		put("8")
		reads("with an entry after the undo", lost, 1, false)
		reads("with an entry after the undo", other, 0, true)
	})
}

// TestMomentsThatCannotBeRestored asks for moments of other histories, of the future, and of a state that is too large.
func TestMomentsThatCannotBeRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fsys, a)
		time.Sleep(2 * time.Second) // the first base: moments before it cannot be restored
		defer s.Abandon()
		put(t, s, "o", "n", "1")
		small, err := s.Bookmark()
		if err != nil {
			t.Fatal(err)
		}
		o := s.live("c", "o")
		for i := range 17 {
			o.put(t, fmt.Sprint(i), strings.Repeat("x", 1<<20))
			if i%8 == 0 {
				o.commit(t)
			}
		}
		o.commit(t)
		large, err := s.Bookmark()
		if err != nil || small >= large {
			t.Fatalf("bookmarks %s and then %s, %v", small, large, err)
		}
		id, number, err := large.Parse()
		if err != nil || id != s.Identity() || number != s.Stats().Ship.Record {
			t.Errorf("%s is of %v, record %d, %v", large, id, number, err)
		}
		fork, store := id, id
		fork.Fork++
		store.Store = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		for _, c := range []struct {
			to   RestorePoint
			kind error
			text string
		}{
			{RestorePoint{}, nil, "want a record"},
			{RestorePoint{Record: number + 1}, ErrNotArchived, fmt.Sprint("the newest record is ", number)},
			{RestorePoint{Time: time.Now().Add(1)}, ErrNotArchived, "it is after now"},
			{RestorePoint{Bookmark: bookmarkOf(id, number+1)}, ErrNotArchived, fmt.Sprint("the newest record is ", number)},
			{RestorePoint{Bookmark: bookmarkOf(fork, number)}, ErrForeignBookmark, "want " + id.String()},
			{RestorePoint{Bookmark: bookmarkOf(store, number)}, ErrForeignBookmark, "it is of " + store.String()},
			{RestorePoint{Bookmark: small[1:]}, ErrBookmark, string(small[1:])},
			{RestorePoint{Bookmark: small + " "}, ErrBookmark, string(small)},
			{RestorePoint{Bookmark: bookmarkOf(id, 0)}, ErrBookmark, ""},
			{RestorePoint{Bookmark: bookmarkOf(Identity{Store: "orders", Fork: id.Fork}, number)}, ErrBookmark, "orders"},
			{RestorePoint{Bookmark: "4711"}, errkind.ErrMisuse, `not a bookmark: "4711"`},
			{RestorePoint{Bookmark: large}, nil, fmt.Sprintf("restoring c/o: the state of c/o as of record %d has 178", number)},
		} {
			st, err := s.ArchivedState(t.Context(), ID{"c", "o"}, c.to)
			if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v, %v; want %v with %q", c.to, st, err, c.kind, c.text)
			}
		}
		var limit *LimitError
		if _, err := s.ArchivedState(t.Context(), ID{"c", "o"}, RestorePoint{Bookmark: large}); !errors.As(err, &limit) || limit.Limit != MaxBatchBytes || limit.Size <= 17<<20 {
			t.Errorf("a state that is too large: %v", err)
		}
		if _, err := s.ArchivedState(t.Context(), ID{"c", "o"}, RestorePoint{Bookmark: small}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		var out bytes.Buffer
		for kind, b := range map[error]Bookmark{ErrForeignBookmark: bookmarkOf(fork, number), ErrNotArchived: bookmarkOf(id, number+1), ErrBookmark: "4711"} {
			if _, err := Restore(t.Context(), a, restoredDir, RestorePoint{Bookmark: b}, &Options{FS: NewMemFS()}); !errors.Is(err, kind) {
				t.Errorf("restoring %s: %v", b, err)
			}
			if _, err := ExportArchived(t.Context(), a, ID{"c", "o"}, RestorePoint{Bookmark: b}, scratchDir, &out, &Options{FS: NewMemFS()}); !errors.Is(err, kind) {
				t.Errorf("exporting as of %s: %v", b, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := open(t, NewMemFS(), Options{})
		_, err := s.ArchivedState(t.Context(), ID{"c", "o"}, RestorePoint{Record: 1})
		if _, none := s.Bookmark(); !errors.Is(err, ErrNotShipping) || !errors.Is(none, ErrNotShipping) {
			t.Errorf("without an archive: %v, %v", err, none)
		}
		s.Abandon()
	})
}

// TestReplacementWaitsForTheArchive restores while the archive is not available, and while a base is being put.
func TestReplacementWaitsForTheArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, down := newMemArchive(), errors.New("down")
		a.refuse = down
		s := shipTo(t, NewMemFS(), a)
		put(t, s, "o", "n", "1")
		number := s.Stats().Ship.Record
		brief, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if _, err := s.ArchivedState(brief, ID{"c", "o"}, RestorePoint{Record: number}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, down) {
			t.Errorf("while the archive is down: %v", err)
		}
		type result struct {
			st  *ArchivedState
			err error
		}
		results := make(chan result, 1)
		read := func() {
			st, err := s.ArchivedState(context.Background(), ID{"c", "o"}, RestorePoint{Record: number})
			results <- result{st, err}
		}
		go read()
		synctest.Wait()
		a.set(func(a *memArchive) {
			a.refuse, a.onPut = nil, func(name string) error {
				if strings.Contains(name, ".end") {
					return down
				}
				return nil
			}
		})
		time.Sleep(25 * time.Second) // less than the base is tried for
		if st := s.Stats().Ship; st.Shipped < number || !st.NeedsBase || len(results) > 0 {
			t.Errorf("before the base is complete: %+v, %d results", st, len(results))
		}
		a.set(func(a *memArchive) { a.onPut = nil })
		if r := <-results; r.err != nil || r.st.Record < number || len(r.st.rows) != 1 {
			t.Errorf("when the archive is back: %+v", r)
		}
		a.set(func(a *memArchive) { a.refuse = down })
		put(t, s, "o", "n", "2")
		number = s.Stats().Ship.Record
		go read()
		synctest.Wait()
		s.Abandon()
		if r := <-results; !errors.Is(r.err, ErrFenced) {
			t.Errorf("when the store closes: %+v", r)
		}
	})
}

// TestReplacementWaitsForMemory replaces an object while the disk does not answer and memory has no room: for the deletion of its rows,
// since too many bytes of the object are not durable, or for a row, since too many of the host are not.
func TestReplacementWaitsForMemory(t *testing.T) {
	for name, limit := range map[string]Options{"deletion": {MaxObjectBytes: 1000}, "row": {MaxHostBytes: 4000}} {
		t.Run(name, func(t *testing.T) {
			held(t, limit, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
				release := fs.HoldSyncs()
				defer release()
				full := s.live("c", "a")
				full.put(t, "n", strings.Repeat("x", 3000))
				full.commitBatch(t)
				o := full
				if limit.MaxHostBytes > 0 {
					o = s.live("c", "b")
				}
				state := &ArchivedState{rows: []row{{key: []byte("kn"), value: []byte(strings.Repeat("y", 1500))}}}
				go func() {
					if err := o.Replace(t.Context(), state); err != nil {
						t.Error(err)
					}
					j.note("replaced")
				}()
				j.want(t)
				release()
				j.want(t, "replaced")
				o.commit(t)
				o.want(t, "n", strings.Repeat("y", 1500))
			})
		})
	}
}
