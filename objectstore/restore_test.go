package objectstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
)

// archiveOf returns the archive of a host that makes a record each second: three in each object after a base of several
// parts. Row n of object o has the number of the record's batch. The host ships at half seconds, so no record is made then.
func archiveOf(t *testing.T, batches int) *memArchive {
	t.Helper()
	a, down := newMemArchive(), errors.New("down")
	a.refuse = down // so the first base is of a later record, and has several rows
	s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.Every, sh.part = 2500*time.Millisecond, 1 })
	for i := range batches {
		if i == 2 {
			a.set(func(a *memArchive) { a.refuse = nil })
		}
		put(t, s, "o", "n", fmt.Sprintf("%02d", i))
		time.Sleep(time.Second)
	}
	time.Sleep(5 * time.Second)
	wantShipped(t, s, a)
	s.Abandon()
	return a
}

// refuses restores a damaged archive, and wants an error of this kind with this text, and no store.
func refuses(t *testing.T, damage string, a Archive, to RestorePoint, kind error, text string) {
	t.Helper()
	fsys := NewMemFS()
	_, err := Restore(t.Context(), a, restoredDir, to, &Options{FS: fsys})
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %v with %q", damage, err, kind, text)
	}
	if s, err := Open(restoredDir, &Options{FS: fsys, ReadOnly: true}); err == nil {
		t.Errorf("%s: a refused restore left a store", damage)
		s.Abandon()
	}
}

// changed returns frames with another byte in the first one, which has a valid sum.
func changed(frames []byte, at int) []byte {
	b := slices.Clone(frames)
	b[at] ^= 1
	end := 89 + int(binary.BigEndian.Uint32(b[5:]))
	sum := sha256.Sum256(b[:end])
	copy(b[end:], sum[:])
	return b
}

// TestArchiveDamageIsRefusedByNumber damages each object of an archive in each way.
func TestArchiveDamageIsRefusedByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content := parseObjects(list)
		base := content.bases[0]
		if len(content.bases) != 1 || len(base.parts) < 2 || len(content.records) < 3 {
			t.Fatalf("the archive has %s", whole.names())
		}
		damaged := func(change func(*memArchive)) *memArchive {
			a := whole.clone()
			change(a)
			return a
		}
		flip := func(name string, bit int) *memArchive {
			return damaged(func(a *memArchive) {
				b := slices.Clone(a.objects[name])
				b[bit/8] ^= 1 << (bit % 8)
				a.objects[name] = b
			})
		}
		tried := 0
		for i, part := range base.parts {
			for bit := 0; bit < 8*len(whole.objects[part.String()]); bit += 71 {
				refuses(t, fmt.Sprint("bit ", bit, " of ", part), flip(part.String(), bit), RestorePoint{}, ErrDamagedArchive,
					fmt.Sprintf("part %d of the base of record %d", i, base.number))
				tried++
			}
		}
		for i, o := range content.records {
			name := o.Name.String()
			size := len(whole.objects[name]) / int(o.Last-o.First+1) // of a frame
			for bit := 0; bit < 8*len(whole.objects[name]); bit += 71 {
				refuses(t, fmt.Sprint("bit ", bit, " of ", name), flip(name, bit), RestorePoint{}, ErrDamagedArchive,
					fmt.Sprintf(": record %d: ", o.First+uint64(bit/8/size)))
				tried++
			}
			for cut := 1; cut <= int(o.Last-o.First); cut++ {
				for _, less := range []int{0, 1} {
					a := damaged(func(a *memArchive) { a.objects[name] = a.objects[name][:size*cut-less] })
					refuses(t, name+" cut off", a, RestorePoint{}, ErrDamagedArchive, fmt.Sprintf(": record %d: ", int(o.First)+cut-less))
					tried++
				}
			}
			if i < len(content.records)-1 {
				a := damaged(func(a *memArchive) { delete(a.objects, name) })
				refuses(t, name+" missing", a, RestorePoint{}, ErrDamagedArchive, fmt.Sprintf("records %d to %d are missing", o.First, o.Last))
				refuses(t, name+" missing, by time", a, RestorePoint{Time: time.Now()}, ErrDamagedArchive, fmt.Sprintf("records %d to %d are missing", o.First, o.Last))
				next := content.records[i+1].Name.String()
				a = damaged(func(a *memArchive) { a.objects[name], a.objects[next] = a.objects[next], a.objects[name] })
				refuses(t, name+" swapped", a, RestorePoint{}, ErrDamagedArchive, fmt.Sprintf("record %d: it is missing", o.First))
			}
			if o.First == o.Last {
				continue
			}
			n := o.Name
			n.First = n.Last
			again := whole.objects[name][size*int(o.Last-o.First):]
			s, _ := restored(t, damaged(func(a *memArchive) { a.objects[n.String()] = again }), RestorePoint{})
			s.live("c", "o").want(t, "n", "11")
			s.Abandon()
			other := changed(again, 49) // its time
			refuses(t, name+" with another record", damaged(func(a *memArchive) { a.objects[n.String()] = other }), RestorePoint{}, ErrDamagedArchive,
				fmt.Sprintf("record %d: ", o.Last))
		}
		if tried < 100 { // 146 to 180: the sizes of compressed frames differ
			t.Errorf("only %d damages were tried", tried)
		}
		first := content.records[0].Name
		foreign := changed(whole.objects[first.String()], 25) // its fork
		refuses(t, "a record of another fork", damaged(func(a *memArchive) { a.objects[first.String()] = foreign }), RestorePoint{},
			ErrDamagedArchive, fmt.Sprintf("record %d: the frame in its place is of store", first.First))
		refuses(t, "a base without its first part", damaged(func(a *memArchive) { delete(a.objects, base.parts[0].String()) }),
			RestorePoint{}, ErrNotArchived, "no complete base")
		refuses(t, "a base without its last part", damaged(func(a *memArchive) { delete(a.objects, base.parts[len(base.parts)-1].String()) }),
			RestorePoint{}, ErrNotArchived, "no complete base")
		refuses(t, "an empty archive", newMemArchive(), RestorePoint{}, errkind.ErrNotFound, "no complete base")
		s, _ := restored(t, whole, RestorePoint{})
		s.Abandon()
	})
}

// TestRestoreAsOfATime asks for moments between the records, which are a second apart.
func TestRestoreAsOfATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := archiveOf(t, 12)
		for i := 5; i < 12; i++ {
			for _, c := range []struct {
				at   time.Duration
				want int
			}{{0, i}, {time.Second - 1, i}, {-1, i - 1}} {
				at := start.Add(time.Duration(i)*time.Second + c.at)
				s, done := restored(t, a, RestorePoint{Time: at})
				s.live("c", "o").want(t, "n", fmt.Sprintf("%02d", c.want))
				if done.Time.After(at) || !done.Time.Equal(start.Add(time.Duration(c.want)*time.Second)) {
					t.Errorf("as of %v the last record is of %v", at.Sub(start), done.Time.Sub(start))
				}
				s.Abandon()
			}
		}
		s, _ := restored(t, a, RestorePoint{Time: start.Add(time.Hour)})
		s.live("c", "o").want(t, "n", "11")
		s.Abandon()
		refuses(t, "before the first base", a, RestorePoint{Time: start}, ErrNotArchived, "its first base is of record")
		refuses(t, "before the first base", a, RestorePoint{Record: 1}, ErrNotArchived, "its first base is of record")
		refuses(t, "a record to come", a, RestorePoint{Record: 99}, ErrNotArchived, "its newest record is 13")
	})
}

// TestRestoreAsOfATimeInAGapIsRefused has an archive whose newest object is a base: the host dropped the records before it.
func TestRestoreAsOfATimeInAGapIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, a := time.Now(), newMemArchive()
		s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.BaseAfter = 1 })
		for i := range 12 {
			put(t, s, "o", "n", fmt.Sprintf("%02d", i))
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		s.Abandon()
		list, err := a.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content := parseObjects(list)
		n := content.bases[len(content.bases)-1].number // their distance depends on their size
		if len(content.bases) < 2 || content.bases[len(content.bases)-2].number > n-4 {
			t.Fatalf("the archive has %s", a.names())
		}
		for _, o := range content.records {
			if o.Last >= n-3 {
				delete(a.objects, o.Name.String())
			}
		}
		at := func(record uint64) RestorePoint { // half a second after it
			return RestorePoint{Time: start.Add(time.Duration(record-2)*time.Second + time.Second/2)}
		}
		for record := n - 4; record < n; record++ {
			refuses(t, fmt.Sprint("the time of record ", record), a, at(record), ErrDamagedArchive, fmt.Sprintf("records %d to %d are missing", n-3, n-1))
		}
		s, _ = restored(t, a, at(n))
		s.live("c", "o").want(t, "n", fmt.Sprintf("%02d", n-2))
		s.Abandon()
	})
}

// TestRestoreNeverOverwrites restores into folders with files.
func TestRestoreNeverOverwrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archiveOf(t, 4)
		fsys := NewMemFS()
		s := open(t, fsys, Options{})
		put(t, s, "mine", "n", "1")
		try := func(name, dir string, want error) {
			t.Helper()
			if _, err := Restore(t.Context(), a, dir, RestorePoint{}, &Options{FS: fsys}); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		try("a store in use", dir, fs.ErrExist)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		try("a store", dir, fs.ErrExist)
		withoutArchive(t, fsys, func(s *Store) { s.live("c", "mine").want(t, "n", "1") })
		lock, err := OpenDirArchive(fsys, restoredDir) // another restore has made the folder and its lock
		if err != nil {
			t.Fatal(err)
		}
		try("a folder that another restore uses", restoredDir, ErrLocked)
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		try("an empty folder", restoredDir, nil)
		try("a restored store", restoredDir, fs.ErrExist)
	})
}

// TestRestoreLetsTheStoreShipToAnArchiveOfItsOwn opens a restored store with the archive of the original, and with another.
func TestRestoreLetsTheStoreShipToAnArchiveOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, fsys := archiveOf(t, 5), NewMemFS()
		if _, err := Restore(t.Context(), a, dir, RestorePoint{}, &Options{FS: fsys}); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, &Options{FS: fsys, Ship: &Shipping{Archive: a, Context: t.Context()}})
		if !errors.Is(err, ErrForeignArchive) {
			t.Errorf("with the archive of the source: %v", err)
		}
		own := newMemArchive()
		s := shipTo(t, fsys, own)
		put(t, s, "o", "n", "5")
		time.Sleep(5 * time.Second)
		wantShipped(t, s, own)
		again, _ := restored(t, own, RestorePoint{})
		if !maps.Equal(rowsOf(t, again), rowsOf(t, s)) {
			t.Error("the archive of the restored store has another state")
		}
		again.Abandon()
		s.Abandon()
	})
}

// TestRestoreReportsAFullDisk has no space left for the records after the base. That is no damage of the archive.
func TestRestoreReportsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestorer(archiveOf(t, 6), restoredDir, RestorePoint{}, &Options{FS: NewMemFS(), MemTable: 64 << 10})
		if err := r.claim(); err != nil {
			t.Fatal(err)
		}
		plan, err := r.plan(t.Context())
		if err == nil {
			err = r.openDatabase()
		}
		if err == nil {
			err = r.replayBase(t.Context(), plan.base)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.store.opts.MemTable = 2 // a batch for each record
		r.space = func() error { return ErrNoSpace }
		if err := r.replayRecords(t.Context(), plan); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrDamagedArchive) {
			t.Errorf("%v, want %v", err, ErrNoSpace)
		}
		if err := errors.Join(r.closeDatabase(), r.lock.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestRestoreRefusesOperationsOfAFrame has a payload that is no list of operations, and an operation on a frame.
func TestRestoreRefusesOperationsOfAFrame(t *testing.T) {
	for want, payload := range map[string][]byte{
		"its operations cannot be decoded": {0xff},
		"it changes a frame":               {byte(frame.OpDelete), 1, keyFrame},
	} {
		err := (&restorer{spans: []span{}}).apply(&frame.Frame{Header: frame.Header{Number: 7}, Payload: payload})
		if e, ok := errors.AsType[*frame.Error](err); !ok || e.Number != 7 || !strings.Contains(e.Reason, want) {
			t.Errorf("%x: %v, want %q", payload, err, want)
		}
	}
}
