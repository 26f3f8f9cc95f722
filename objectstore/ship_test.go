package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const archiveDir, restoredDir = "/archive", "/restored"

// memArchive is an archive in memory, with faults.
type memArchive struct {
	mu      sync.Mutex
	objects map[string][]byte
	refuse  error                   // of Put, List and Get
	lost    int                     // how many of the next puts succeed and return an error
	onPut   func(name string) error // called before an object is stored
}

func newMemArchive() *memArchive { return &memArchive{objects: map[string][]byte{}} }

func (a *memArchive) Put(_ context.Context, name string, content []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onPut != nil {
		if err := a.onPut(name); err != nil {
			return err
		}
	}
	if a.refuse != nil {
		return a.refuse
	}
	if old, ok := a.objects[name]; ok && !bytes.Equal(old, content) {
		return fmt.Errorf("%w: %s", ErrObjectDiffers, name)
	}
	a.objects[name] = bytes.Clone(content)
	if a.lost > 0 {
		a.lost--
		return errors.New("no answer")
	}
	return nil
}

func (a *memArchive) List(context.Context) (list []ArchiveObject, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		return nil, a.refuse
	}
	for _, name := range slices.Sorted(maps.Keys(a.objects)) {
		list = append(list, ArchiveObject{name, int64(len(a.objects[name]))})
	}
	return list, nil
}

func (a *memArchive) Get(_ context.Context, name string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if content, ok := a.objects[name]; ok || a.refuse != nil {
		return bytes.Clone(content), a.refuse // some tests damage objects while a host reads them
	}
	return nil, fmt.Errorf("no object %s", name)
}

func (a *memArchive) set(change func(*memArchive)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *memArchive) clone() *memArchive {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &memArchive{objects: maps.Clone(a.objects)}
}

func (a *memArchive) names() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(a.objects)), " ")
}

// shipTo opens a store that ships, in a bubble.
func shipTo(t *testing.T, fs *FS, a Archive, change ...func(*Shipping)) *Store {
	t.Helper()
	sh := &Shipping{Archive: a, Context: context.Background()}
	for _, c := range change {
		c(sh)
	}
	s, err := Open(dir, &Options{FS: fs, Ship: sh})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// restored restores an archive into a file system of its own, and opens the store.
func restored(t *testing.T, a Archive, to RestorePoint) (*Store, Restored) {
	t.Helper()
	fs := NewMemFS()
	done, err := Restore(t.Context(), a, restoredDir, to, &Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(restoredDir, &Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return s, done
}

// rawFrame is a frame that was decoded without the codec.
type rawFrame struct {
	kind           byte
	number         uint64
	part           uint32
	prev, ops, sum string
}

// rawFrames decodes all objects of an archive without the codec, and checks the sums.
func rawFrames(t *testing.T, a *memArchive) (all []rawFrame) {
	t.Helper()
	for _, name := range strings.Fields(a.names()) {
		for b := a.objects[name]; len(b) > 0; {
			end := 89 + int(binary.BigEndian.Uint32(b[5:]))
			sum := sha256.Sum256(b[:end])
			if string(b[:4]) != "dhf1" || string(sum[:]) != string(b[end:end+32]) {
				t.Fatalf("%s has a broken frame", name)
			}
			all = append(all, rawFrame{
				b[4], binary.BigEndian.Uint64(b[37:]), binary.BigEndian.Uint32(b[45:]), string(b[57:89]), string(b[89:end]), string(sum[:]),
			})
			b = b[end+32:]
		}
	}
	return all
}

// history returns the rows after each record that an archive can restore, without the codec. It checks that no record is
// repeated, that each continues the one before, and that a base has the rows that the records lead to.
func history(t *testing.T, a *memArchive) map[uint64]map[string]string {
	t.Helper()
	partial := map[uint64]map[string]string{}
	records, bases, links := map[uint64]rawFrame{}, map[uint64]map[string]string{}, map[uint64]string{}
	for _, f := range rawFrames(t, a) {
		if f.kind != 'r' {
			if f.part == 0 {
				partial[f.number], links[f.number] = map[string]string{}, f.prev
			}
			if partial[f.number] == nil { // its first part is lost
				continue
			}
			apply(partial[f.number], f.ops)
			if f.kind == 'e' {
				bases[f.number] = partial[f.number]
			}
			continue
		}
		if _, repeated := records[f.number]; repeated {
			t.Fatalf("record %d is repeated", f.number)
		}
		records[f.number] = f
	}
	states := map[uint64]map[string]string{}
	for number := range slices.Values(slices.Sorted(maps.Keys(bases))) {
		if _, known := states[number]; known {
			continue
		}
		rows, sum := bases[number], links[number]
		states[number] = maps.Clone(rows)
		for next, ok := records[number+1]; ok; next, ok = records[next.number+1] {
			if next.prev != sum {
				t.Fatalf("record %d does not continue the one before", next.number)
			}
			apply(rows, next.ops)
			sum = next.sum
			states[next.number] = maps.Clone(rows)
			if base, ok := bases[next.number]; ok && !maps.Equal(base, rows) {
				t.Fatalf("the base of record %d has %q, the records lead to %q", next.number, base, rows)
			}
		}
	}
	return states
}

// apply executes the operations of a payload.
func apply(rows map[string]string, ops string) {
	b := []byte(ops)
	field := func() string {
		n, size := binary.Uvarint(b)
		v := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return v
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		switch key := field(); kind {
		case 0:
			delete(rows, key)
		case 1:
			rows[key] = field()
		case 15:
			limit := field()
			maps.DeleteFunc(rows, func(k, _ string) bool { return k >= key && k < limit })
		}
	}
}

// rowsOf returns all rows of the store, except its own record, the frames and their limit.
func rowsOf(t *testing.T, s *Store) map[string]string {
	t.Helper()
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	w, err := sn.walk(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	rows := map[string]string{}
	ok, err := w.first()
	for ; ok && err == nil; ok, err = w.next() {
		if w.key[0] != keyHost && w.key[0] != keyFrame && w.key[0] != keyLimit {
			rows[string(w.key)] = string(w.value)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// put writes a row of an object and waits until it is durable.
func put(t *testing.T, s *Store, name, key, value string) {
	t.Helper()
	o := s.live("c", name)
	o.put(t, key, value)
	o.commit(t)
}

// TestRecordsInTheArchiveRestoreEachState ships the work of three hosts, and restores the archive as of each record.
func TestRecordsInTheArchiveRestoreEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		withoutArchive(t, fs, func(s *Store) { put(t, s, "before", "n", "1") })
		for host := range 3 {
			s := shipTo(t, fs, a)
			for i := range 4 {
				put(t, s, fmt.Sprint("o", i%2), "n", fmt.Sprint(host, " ", i))
				time.Sleep(400 * time.Millisecond)
			}
			o := s.live("c", "o0")
			if err := o.DeleteAll(); err != nil {
				t.Fatal(err)
			}
			o.SetSlot(Slot{Due: due(int64(host)), Generation: 1})
			o.commit(t)
			if host == 1 {
				s.Abandon()
			} else if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		states := history(t, a)
		if len(states) < 15 {
			t.Fatalf("the archive has %d states: %s", len(states), a.names())
		}
		for number, want := range states {
			s, done := restored(t, a, RestorePoint{Record: number})
			delete(want, "h")
			if got := rowsOf(t, s); !maps.Equal(got, want) || done.Record != number {
				t.Errorf("restored as of %d: %q at %d, want %q", number, got, done.Record, want)
			}
			wantConsistent(t, s)
			s.Abandon()
		}
		last, done := restored(t, a, RestorePoint{})
		defer last.Abandon()
		source := open(t, fs, Options{})
		if !maps.Equal(rowsOf(t, last), rowsOf(t, source)) || done.Identity != source.Identity() {
			t.Errorf("the newest state differs from the store's: %+v", done)
		}
		if last.Identity().Store != source.Identity().Store || last.Identity().Fork == source.Identity().Fork {
			t.Errorf("the restored store is %v, that of the archive %v", last.Identity(), source.Identity())
		}
		source.Abandon()
	})
}

// withoutArchive lets a host that does not ship use the store.
func withoutArchive(t *testing.T, fs *FS, use func(*Store)) {
	t.Helper()
	s := open(t, fs, Options{})
	use(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
