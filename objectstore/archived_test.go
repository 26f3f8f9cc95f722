package objectstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost/internal/frame"
)

const scratchDir = "/tmp/scratch"

// exportArchived returns the rows of an export of an object as of a moment; nil if the object is absent then.
func exportArchived(t *testing.T, a Archive, id ID, to RestorePoint) map[string]string {
	t.Helper()
	fsys := NewMemFS()
	var b bytes.Buffer
	done, err := ExportArchived(t.Context(), a, id, to, scratchDir, &b, &Options{FS: fsys})
	wantNoScratch(t, fsys)
	if errors.Is(err, ErrNoObject) && b.Len() == 0 {
		return nil
	}
	if err != nil || to.Record > 0 && done.Record != to.Record {
		t.Fatalf("%v as of %+v: %+v, %v", id, to, done, err)
	}
	return exportedRows(t, b.Bytes())
}

func wantNoScratch(t *testing.T, fsys *FS) {
	t.Helper()
	if names, err := fsys.base.List(scratchDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the scratch directory is still there: %q, %v", names, err)
	}
}

// exportedRows decodes an export: its rows by their keys within the object.
func exportedRows(t *testing.T, stream []byte) map[string]string {
	t.Helper()
	dec := msgpack.NewDecoder(bytes.NewReader(stream))
	next := func() any {
		v, err := dec.DecodeInterface()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	next()
	next()
	rows := map[string]string{}
	for {
		switch kind := fmt.Sprint(next()); kind {
		case "1":
			key := string(next().([]byte))
			rows[key] = string(next().([]byte))
		case "2":
			rows["ms"] = string(next().([]byte))
		default:
			if n := fmt.Sprint(next()); n != fmt.Sprint(len(rows)-min(1, len(rows["ms"]))) {
				t.Errorf("an export of %d rows names %s", len(rows), n)
			}
			return rows
		}
	}
}

// objectRows are the rows of one object, by their keys within it.
func objectRows(rows map[string]string, id ID) (own map[string]string) {
	for key, value := range rows {
		if rest, ok := strings.CutPrefix(key, "o"+id.Class+"\x00"+id.Name+"\x00"); ok {
			if own == nil {
				own = map[string]string{}
			}
			own[rest] = value
		}
	}
	return own
}

// neighbours are objects with names that are close to one another.
var neighbours = []ID{{"c", "a"}, {"c", "ab"}, {"c", "b"}, {"cc", "a"}}

// archivedModel makes random changes of objects, and keeps their state after each record.
type archivedModel struct {
	t    *testing.T
	rnd  *rand.Rand
	s    *Store
	live map[ID]live
	kv   map[ID]map[string]string // the rows of each object
	due  map[ID]int64             // of the alarm; absent if there is none
	rows map[ID]map[string]string // of the collection: the place in its index
	at   map[uint64]map[ID]archivedState
}

// archivedState is the state of an object after a record, by the model and as the store had it then.
type archivedState struct {
	kv, rows map[string]string
	due      int64
	stored   map[string]string
}

var modelCollection = &Collection{Name: "rows", Feed: Feed{Name: "log", Keep: 5}}

func newArchivedModel(t *testing.T, seed uint64) *archivedModel {
	return &archivedModel{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), live: map[ID]live{}, kv: map[ID]map[string]string{},
		due: map[ID]int64{}, rows: map[ID]map[string]string{}, at: map[uint64]map[ID]archivedState{},
	}
}

// open begins to use a store.
func (m *archivedModel) open(s *Store) {
	m.s = s
	for _, id := range neighbours {
		m.live[id] = s.live(id.Class, id.Name)
		if m.kv[id] == nil {
			m.kv[id], m.rows[id] = map[string]string{}, map[string]string{}
		}
	}
}

// step changes an object, waits until that is durable, and keeps the states.
func (m *archivedModel) step() {
	t := m.t
	t.Helper()
	id := neighbours[m.rnd.IntN(len(neighbours))]
	o := m.live[id]
	key := fmt.Sprint(m.rnd.IntN(6))
	var err error
	switch n := m.rnd.IntN(20); {
	case n == 0:
		err = o.DeleteAll()
		m.kv[id], m.rows[id] = map[string]string{}, map[string]string{}
		delete(m.due, id)
	case n == 1: // more rows than are deleted one by one
		for i := range maxPointDeletes + 5 {
			o.put(t, fmt.Sprintf("many%04d", i), "x")
			m.kv[id][fmt.Sprintf("many%04d", i)] = "x"
		}
	case n < 6:
		m.due[id] = int64(1 + m.rnd.IntN(1000))
		o.SetSlot(Slot{Due: due(m.due[id]), Generation: m.s.NewAlarmGeneration(), AtStart: n == 2})
	case n < 8:
		o.ClearSlot()
		delete(m.due, id)
	case n < 13:
		place := fmt.Sprint(m.rnd.IntN(3))
		o.putRow(t, modelCollection, key, place, "by="+place)
		m.rows[id][key] = place
	case n < 14:
		_, _, err = o.DeleteRow(modelCollection, []byte(key), AnyVersion)
		delete(m.rows[id], key)
	case n < 16:
		err = o.Delete(SpaceKV, []byte(key), false)
		delete(m.kv[id], key)
	default:
		m.kv[id][key] = fmt.Sprint(m.rnd.IntN(1000))
		o.put(t, key, m.kv[id][key])
	}
	if err != nil {
		t.Fatal(err)
	}
	o.commit(t)
	m.keep()
}

// keep keeps the states after the newest record.
func (m *archivedModel) keep() {
	m.t.Helper()
	stored, states := rowsOf(m.t, m.s), map[ID]archivedState{}
	for _, id := range neighbours {
		states[id] = archivedState{maps.Clone(m.kv[id]), maps.Clone(m.rows[id]), m.due[id], objectRows(stored, id)}
	}
	m.at[m.s.Stats().Ship.Record] = states
}

// want checks the rows of an export of an object as of a record.
func (m *archivedModel) want(number uint64, id ID, got map[string]string) {
	t, want := m.t, m.at[number][id]
	t.Helper()
	if !maps.Equal(got, want.stored) {
		t.Errorf("%v as of record %d: %q, want %q", id, number, got, want.stored)
	}
	kv, rows, entries, alarm := 0, 0, 0, int64(0)
	for key, value := range got {
		switch {
		case key[0] == 'k':
			if kv++; want.kv[key[1:]] != value {
				t.Errorf("%v as of record %d: key %q has %q, want %q", id, number, key[1:], value, want.kv[key[1:]])
			}
		case key == "ms":
			slot, err := decodeSlot([]byte(value))
			if err != nil {
				t.Error(err)
			}
			alarm = slot.Due.UnixMilli()
		case strings.HasPrefix(key, "crrows\x00"):
			rows++
		case strings.HasPrefix(key, "cirows\x00by\x00"):
			place, row, _ := strings.Cut(strings.TrimPrefix(key, "cirows\x00by\x00"), "\x00")
			if entries++; want.rows[row] != place {
				t.Errorf("%v as of record %d: row %q is at %q of the index, want %q", id, number, row, place, want.rows[row])
			}
		}
	}
	if kv != len(want.kv) || rows != len(want.rows) || entries != len(want.rows) || alarm != want.due {
		t.Errorf("%v as of record %d: %d keys, %d rows, %d index entries, alarm %d; want %d, %d, and alarm %d",
			id, number, kv, rows, entries, alarm, len(want.kv), len(want.rows), want.due)
	}
}

// TestExportArchivedHasTheObjectOfEachRecord exports each object as of each record, and compares it with its state when the record was
// made.
func TestExportArchivedHasTheObjectOfEachRecord(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, fsys, a := newArchivedModel(t, seed), NewMemFS(), newMemArchive()
				for host := range 2 {
					s := shipTo(t, fsys, a, func(sh *Shipping) { sh.part, sh.shipment, sh.BaseAfter = 5000, 2000, 20000 })
					m.open(s)
					m.keep()
					for range 50 {
						m.step()
						time.Sleep(time.Duration(m.rnd.IntN(900)) * time.Millisecond)
					}
					time.Sleep(5 * time.Second)
					if host == 0 {
						s.Abandon()
					} else if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				absent, present := 0, 0
				var first uint64 // of the first base
				if _, err := fmt.Sscanf(a.names(), "%d.base", &first); err != nil {
					t.Fatal(err)
				}
				for number := range m.at {
					if number < first {
						continue
					}
					for _, id := range neighbours {
						got := exportArchived(t, a, id, RestorePoint{Record: number})
						m.want(number, id, got)
						if present++; got == nil {
							absent++
						}
					}
				}
				t.Logf("%d states, %d of them of absent objects", present, absent)
				if present < 300 || absent == 0 || strings.Count(a.names(), ".end") < 2 {
					t.Error("too few states, or bases, were tried")
				}
			})
		})
	}
}

// deleteRange is an operation that deletes a range of keys.
func deleteRange(from, limit string) []byte {
	b := binary.AppendUvarint([]byte{15}, uint64(len(from)))
	b = binary.AppendUvarint(append(b, from...), uint64(len(limit)))
	return append(b, limit...)
}

// TestExportArchivedAppliesDeletionsOfRanges replays deletions of ranges that have the object, or a part of it, in any
// place.
func TestExportArchivedAppliesDeletionsOfRanges(t *testing.T) {
	const object = "oc\x00ab\x00"
	store, host := ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV"), []byte{hostVersion}
	host = binary.BigEndian.AppendUint32(append(host, store[:]...), 7)
	host = append(host, make([]byte, 13)...)
	keys := []string{"h", "ic\x00ab\x00", "oc\x00a\x00kx", object + "ka", object + "kb", object + "kc", object + "ms", "oc\x00ab\x01", "oc\x00abc\x00kx", "od\x00ab\x00ka"}
	bounds := []string{"a", "i", "ic\x00ab\x00", "ic\x00ab\x00\x00", "o", "oc\x00ab", object, object + "ka", object + "ka\x00", object + "kb", object + "kz", object + "n", "oc\x00ab\x01", "oc\x00ac", "p"}
	slot := string(encodeSlot(Slot{Due: due(5), Generation: 1}))
	p := frame.Position{Store: store, Fork: 7, Generation: 1, Number: 1}
	tried := 0
	for i, lower := range bounds {
		for _, upper := range bounds[i:] {
			rows, base := map[string]string{}, []byte(nil)
			for _, key := range keys {
				rows[key] = key
				if strings.HasSuffix(key, "ms") {
					rows[key] = slot
				}
				if key[0] == 'h' {
					rows[key] = string(host)
				}
				if key[0] != 'i' || tried%2 == 0 {
					base = frame.AppendSet(base, []byte(key), []byte(rows[key]))
				} else {
					delete(rows, key)
				}
			}
			ops := deleteRange(lower, upper)
			if lower < "h" && upper > "h" {
				ops = frame.AppendSet(ops, []byte("h"), host)
			}
			a := newMemArchive()
			encode := func(name frame.Name, h frame.Header, payload []byte) {
				a.objects[name.String()] = make([]byte, frame.Size(len(payload)))
				frame.Encode(a.objects[name.String()], &h, payload)
			}
			encode(frame.Name{Last: 1, End: true}, p.BaseHeader(0, true, frame.Sum{}), base)
			encode(frame.Name{First: 2, Last: 2}, p.Header(1, 0), ops)
			apply(rows, string(ops))
			want := objectRows(rows, ID{"c", "ab"})
			if _, importing := rows["ic\x00ab\x00"]; importing {
				want = nil
			}
			if got := exportArchived(t, a, ID{"c", "ab"}, RestorePoint{}); !maps.Equal(got, want) {
				t.Errorf("after the deletion of %q to %q: %q, want %q", lower, upper, got, want)
			}
			tried++
		}
	}
	t.Logf("%d deletions", tried)
	if tried < 100 {
		t.Error("too few deletions were tried")
	}
}

// TestExportArchivedReadsTheObjectAlone looks at the database of a restore of one object.
func TestExportArchivedReadsTheObjectAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fsys, a := newArchivedModel(t, 7), NewMemFS(), newMemArchive()
		s := shipTo(t, fsys, a)
		m.open(s)
		for range 30 {
			m.step()
			time.Sleep(300 * time.Millisecond)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, id := range neighbours {
			rows := map[string]string{}
			read := archivedRead{from: a, id: id, scratch: scratchDir, options: &Options{FS: NewMemFS()}}
			_, err := read.run(t.Context(), func(sn *Snapshot, _ Restored) error {
				w, err := sn.walk(nil, nil)
				if err != nil {
					return err
				}
				defer w.close()
				ok, err := w.first()
				for ; ok && err == nil; ok, err = w.next() {
					rows[string(w.key)] = string(w.value)
				}
				return err
			})
			if own := objectRows(rows, id); err != nil || len(rows) != len(own)+1 || rows["h"] == "" {
				t.Errorf("the database for %v has %d rows, %d of them of the object, %v", id, len(rows), len(own), err)
			}
		}
	})
}

// TestArchiveDamageIsRefusedForEachObject flips bits of each frame, also of frames without a row of the object.
func TestArchiveDamageIsRefusedForEachObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		tried := 0
		for _, name := range strings.Fields(whole.names()) {
			for bit := 0; bit < 8*len(whole.objects[name]); bit += 71 {
				a, fsys := whole.clone(), NewMemFS()
				b := bytes.Clone(a.objects[name])
				b[bit/8] ^= 1 << (bit % 8)
				a.objects[name] = b
				for _, id := range []ID{{"c", "o"}, {"c", "none"}} {
					n, err := ExportArchived(t.Context(), a, id, RestorePoint{}, scratchDir, io.Discard, &Options{FS: fsys})
					if !errors.Is(err, ErrDamagedArchive) || n != (Restored{}) {
						t.Errorf("bit %d of %s: %+v, %v", bit, name, n, err)
					}
					wantNoScratch(t, fsys)
					tried++
				}
			}
		}
		if tried < 150 {
			t.Errorf("only %d damages were tried", tried)
		}
	})
}

// endingWriter ends a context at its first write, and fails with err.
type endingWriter struct {
	end context.CancelFunc
	err error
}

func (w endingWriter) Write(p []byte) (int, error) {
	w.end()
	return len(p), w.err
}

// TestExportArchivedLeavesNothing fails and cancels exports.
func TestExportArchivedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, fsys := newMemArchive(), NewMemFS()
		s := shipTo(t, NewMemFS(), a)
		time.Sleep(2 * time.Second) // the first base: Close does not wait for it
		put(t, s, "o", "large", strings.Repeat("x", 100_000))
		put(t, s, "o", "other", strings.Repeat("x", 100_000))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		export := func(ctx context.Context, to RestorePoint, dir string, w io.Writer) error {
			_, err := ExportArchived(ctx, a, ID{"c", "o"}, to, dir, w, &Options{FS: fsys})
			return err
		}
		wants := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%v; want %v", err, want)
			}
			wantNoScratch(t, fsys)
		}
		full := errors.New("the writer failed")
		wants(export(t.Context(), RestorePoint{}, scratchDir, endingWriter{func() {}, full}), full)
		wants(export(t.Context(), RestorePoint{}, scratchDir, endingWriter{func() {}, nil}), nil)
		ending, end := context.WithCancel(t.Context())
		wants(export(ending, RestorePoint{}, scratchDir, endingWriter{end, nil}), context.Canceled)
		wants(export(ending, RestorePoint{}, scratchDir, io.Discard), context.Canceled)
		wants(export(t.Context(), RestorePoint{Record: 99}, scratchDir, io.Discard), ErrNotArchived)
		wants(export(t.Context(), RestorePoint{Time: time.Unix(1, 0)}, scratchDir, io.Discard), ErrNotArchived)
		var bad *NameError
		if _, err := ExportArchived(t.Context(), a, ID{"c", ""}, RestorePoint{}, scratchDir, io.Discard, &Options{FS: fsys}); !errors.As(err, &bad) {
			t.Errorf("an object without a name: %v", err)
		}
		if err := fsys.base.MkdirAll(scratchDir+"/mine", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := export(t.Context(), RestorePoint{}, scratchDir, io.Discard); !errors.Is(err, fs.ErrExist) {
			t.Errorf("in a directory with files: %v", err)
		}
		if names, err := fsys.base.List(scratchDir); err != nil || len(names) != 1 {
			t.Errorf("it has %q now, %v", names, err)
		}
	})
}
