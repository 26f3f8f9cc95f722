package objectstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// damagedObjects is the number of objects of damagedStore.
const damagedObjects = 300

// damagedStore returns a file system with a store of 300 objects, "c" "n000" and so
// on, in one table with many blocks. Each has a row, and an alarm if alarms is set.
func damagedStore(t *testing.T, alarms bool) *FS {
	t.Helper()
	fs := NewMemFS()
	s := open(t, fs, Options{})
	for i := range damagedObjects {
		o := s.live("c", fmt.Sprintf("n%03d", i))
		o.put(t, "k", noise(1000, uint64(i)))
		if alarms {
			o.SetSlot(Slot{Due: due(int64(i + 1)), Generation: s.NewAlarmGeneration()})
		}
		o.commit(t)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, fs, Options{}).Close(); err != nil { // flushes the log into a table
		t.Fatal(err)
	}
	return fs
}

// noise is a value that a table cannot compress.
func noise(n int, seed uint64) string {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return string(b)
}

// flip flips one bit of the only table of a store: in the block of the byte that of chooses.
func flip(t *testing.T, fs *FS, of func(table []byte) int) {
	t.Helper()
	names, err := fs.base.List(dir + "/db")
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for _, n := range names {
		if !strings.HasSuffix(n, ".sst") {
			continue
		}
		flipIn(t, fs, n, of)
		flipped++
	}
	if flipped != 1 {
		t.Fatalf("%d tables", flipped)
	}
}

// flipIn flips one bit of a table: in the block of the byte that of chooses. It is a bit of the first byte: Pebble searches the flipped bit of a
// damaged block from the start, which takes a third of a second for a bit at the end.
func flipIn(t *testing.T, fs *FS, name string, of func(table []byte) int) {
	t.Helper()
	f, err := fs.base.OpenReadWrite(dir+"/db/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	at := blockStart(t, b, of(b))
	if _, err := f.WriteAt([]byte{b[at] ^ 1}, int64(at)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// blockStart returns the start of the block of a table that has the byte at a place.
func blockStart(t *testing.T, table []byte, at int) int {
	t.Helper()
	var o objstorage.MemObj
	if err := o.Write(slices.Clone(table)); err != nil {
		t.Fatal(err)
	}
	var options pebble.Options
	options.EnsureDefaults()
	r, err := sstable.NewReader(t.Context(), &o, options.MakeReaderOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := r.Layout()
	if err != nil {
		t.Fatal(err)
	}
	blocks := append(slices.Clone(l.Index), l.TopIndex, l.Properties, l.MetaIndex)
	for _, b := range l.Data {
		blocks = append(blocks, b.Handle)
	}
	for _, b := range blocks {
		if start, end := int(b.Offset), int(b.Offset+b.Length); start <= at && at < end {
			return start
		}
	}
	t.Fatalf("no block of %d has the byte %d", len(blocks), at)
	return 0
}

func third(table []byte) int { return len(table) / 3 }

// damagedAt returns the place of a text in the table.
func damagedAt(t *testing.T, text string) func([]byte) int {
	return func(table []byte) int {
		at := bytes.Index(table, []byte(text))
		if at < 0 {
			t.Fatal("the table does not have the text")
		}
		return at
	}
}

// readAll reads the row of each object and returns the errors.
func readAll(t *testing.T, s *Store) (bad []error) {
	t.Helper()
	for i := range damagedObjects {
		o := s.live("c", fmt.Sprintf("n%03d", i))
		v, ok, err := o.Get(nil, SpaceKV, []byte("k"))
		switch {
		case err != nil:
			bad = append(bad, err)
		case !ok || string(v) != noise(1000, uint64(i)):
			t.Errorf("object %d: %v, %d bytes", i, ok, len(v))
		}
	}
	return bad
}

func TestDamageOfABlockFailsOnlyItsReads(t *testing.T) {
	fs := damagedStore(t, false)
	flip(t, fs, third)
	var log bytes.Buffer
	var found []Damage
	s := open(t, fs, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), OnDamage: func(d Damage) { found = append(found, d) }})
	for range 2 {
		bad := readAll(t, s)
		if len(bad) == 0 || len(bad) > 100 {
			t.Fatalf("%d objects could not be read: %v", len(bad), bad)
		}
		for _, err := range bad {
			var damage *DamageError
			if !errors.As(err, &damage) || !errors.Is(err, ErrDamaged) || damage.Object.Class != "c" ||
				!strings.HasSuffix(damage.Damage.File, ".sst") || !strings.Contains(err.Error(), damage.Object.String()) {
				t.Errorf("error %v", err)
			}
		}
	}
	if s.Err() != nil {
		t.Errorf("the store has failed: %v", s.Err())
	}
	if n := s.Stats().Damaged; n != 1 || len(found) != 1 {
		t.Errorf("%d damaged blocks were counted, %v reported; want 1", n, found)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || len(log.String()) > 500 {
		t.Errorf("the log has %d lines:\n%s", n, log.String())
	}
	o := s.live("c", "new")
	o.put(t, "k", "v")
	o.commit(t)
}

func TestDamageOfABlockIsReportedByCheck(t *testing.T) {
	for _, alarms := range []bool{false, true} {
		fs := damagedStore(t, alarms)
		s := open(t, fs, Options{})
		b := pebbleDB(s).NewBatch() // a second problem, after the damage
		if err := b.Set([]byte("zzz"), nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := pebbleDB(s).Apply(b, nil); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
		whole := wantProblems(t, fs, "unknown kind")
		flip(t, fs, damagedAt(t, noise(1000, 150)[:100]))
		got := wantProblems(t, fs, "cannot be read", "unknown kind")
		if lost := whole.Objects - got.Objects; lost < 1 || lost > 100 {
			t.Errorf("check has seen %d of %d objects", got.Objects, whole.Objects)
		}
	}
}

// wantProblems checks a store. Each of the texts must be in some problem, and each problem must have some of them.
func wantProblems(t *testing.T, fs *FS, texts ...string) CheckStats {
	t.Helper()
	s := open(t, fs, Options{ReadOnly: true})
	defer s.Abandon()
	found := make(map[string]int)
	stats, err := s.Check(t.Context(), func(p Problem) {
		for _, text := range texts {
			if strings.Contains(p.String(), text) {
				found[text]++
				return
			}
		}
		if !strings.Contains(p.String(), "without an alarm") { // its slot is in the damaged block
			t.Errorf("problem %v", p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if found[text] == 0 {
			t.Errorf("no problem says %q", text)
		}
	}
	return stats
}

// The objects that check does not see are exactly those in the damaged block.
func TestDamageHidesNoOtherObject(t *testing.T) {
	for at := 10; at < damagedObjects; at += 97 {
		fs := damagedStore(t, false)
		flip(t, fs, damagedAt(t, noise(1000, uint64(at))[:100]))
		s := open(t, fs, Options{ReadOnly: true})
		bad := readAll(t, s)
		sn, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		listed := 0
		var damaged error
		for _, err := range sn.Objects("c", "") {
			if err != nil {
				damaged = errors.Join(damaged, err)
				continue
			}
			listed++
		}
		sn.Close()
		if !errors.Is(damaged, ErrDamaged) || listed != damagedObjects-len(bad) {
			t.Errorf("object %d: %d objects were listed, %d cannot be read: %v", at, listed, len(bad), damaged)
		}
	}
}

func TestDamageDoesNotBlockExportOfOtherObjects(t *testing.T) {
	fs := damagedStore(t, false)
	flip(t, fs, third)
	s := open(t, fs, Options{ReadOnly: true})
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	exported := 0
	for i := range damagedObjects {
		var out bytes.Buffer
		id := ID{"c", fmt.Sprintf("n%03d", i)}
		switch err := sn.Export(id, &out); {
		case err == nil:
			exported++
		case !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), id.String()):
			t.Errorf("export: %v", err)
		}
	}
	if exported < 200 || exported == damagedObjects {
		t.Errorf("%d objects were exported", exported)
	}
}

func TestAlarmsAfterDamageAreRead(t *testing.T) {
	fs := damagedStore(t, true)
	flip(t, fs, func([]byte) int { return 100 }) // the index is the first of the table's keys
	s := open(t, fs, Options{})
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	as, pos, err := sn.Alarms("c", AlarmPos{}, 2*damagedObjects)
	if err != nil {
		t.Fatal(err)
	}
	if len(as) == 0 || len(as) == damagedObjects {
		t.Fatalf("%d alarms", len(as))
	}
	if last := as[len(as)-1]; last.ID.Name != "n299" || pos != last.Pos() {
		t.Errorf("the last alarm is %v", last)
	}
	if s.Stats().Damaged != 1 {
		t.Errorf("%d damaged blocks", s.Stats().Damaged)
	}
}

func TestAlarmClassesAfterDamageAreRead(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	name := func(class string, i int) string {
		return fmt.Sprintf("n%03d%x", i, noise(60, uint64(i)+1000*uint64(class[0])))
	}
	for _, class := range []string{"c", "d", "e"} {
		for i := range 100 {
			o := s.live(class, name(class, i))
			o.SetSlot(Slot{Due: due(int64(i + 1)), Generation: s.NewAlarmGeneration()})
			o.commit(t)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, fs, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"c", "d"} {
		damaged := fs.Crash(0, 0)
		flip(t, damaged, damagedAt(t, name(first, 0)[10:60])) // the index is the first of the table's keys
		s := open(t, damaged, Options{})
		sn, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		classes, err := sn.AlarmClasses()
		if !slices.Equal(classes, []string{"c", "d", "e"}) || !errors.Is(err, ErrDamaged) {
			t.Errorf("damage at the first alarm of %s: classes %v, %v", first, classes, err)
		}
		sn.Close()
	}
}

// Damage in the index of the parked alarms, and damage in the slots, leave out the alarms in the block.
func TestAlarmsParkedAfterDamageAreRead(t *testing.T) {
	const alarms = 300
	fs := NewMemFS()
	s := open(t, fs, Options{})
	name := func(i int) string { return fmt.Sprintf("n%03d%x", i, noise(60, uint64(i))) }
	for i := range alarms {
		o := s.live("c", name(i))
		o.SetSlot(Slot{Due: due(int64(i + 1)), Generation: s.NewAlarmGeneration(), Parked: ParkedFailed, Error: noise(200, uint64(i)+1000)})
		o.commit(t)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, fs, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]func(table []byte) int{
		"slots": damagedAt(t, noise(200, 1150)[:100]),
		"index": func(table []byte) int { return bytes.LastIndex(table, []byte(name(280)[5:60])) }, // comes after the objects
	} {
		damaged := fs.Crash(0, 0)
		flip(t, damaged, at)
		s := open(t, damaged, Options{})
		sn, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		listed, damage := 0, 0
		for p, err := range sn.Parked("", ID{}) {
			switch {
			case errors.Is(err, ErrDamaged):
				damage++
			case err != nil:
				t.Errorf("%s: %v", what, err)
			default:
				listed++
				if p.ID.Name == name(alarms-1) {
					listed += alarms // the last one
				}
			}
		}
		if listed < alarms+200 || listed >= 2*alarms || damage == 0 {
			t.Errorf("damage of the %s: %d alarms, %d errors", what, listed, damage)
		}
		sn.Close()
	}
}

func TestAlarmEntryOfUnknownVersionHidesNoAlarm(t *testing.T) {
	var found []Damage
	s := open(t, NewMemFS(), Options{OnDamage: func(d Damage) { found = append(found, d) }})
	for i := range 3 {
		o := s.live("c", fmt.Sprint(i))
		o.SetSlot(Slot{Due: due(int64(i + 1)), Generation: uint64(i + 7), AtStart: true})
		o.commit(t)
	}
	b := pebbleDB(s).NewBatch()
	stale := alarmKey(1, ID{"c", "2"})
	for _, key := range [][]byte{stale, alarmKey(2, ID{"c", "1"}), startKey(ID{"c", "1"})} {
		if err := b.Set(key, []byte{99}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := pebbleDB(s).Apply(b, nil); err != nil {
		t.Fatal(err)
	}
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	as, _, err := sn.Alarms("c", AlarmPos{}, 10)
	starts, err2 := sn.StartAlarms("c", "", 10)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, as := range [][]Alarm{as, starts} {
		if len(as) != 3 {
			t.Fatalf("alarms: %v", as)
		}
		for i, a := range as {
			if want := (Alarm{ID: ID{"c", fmt.Sprint(i)}, Due: due(int64(i + 1)), Generation: uint64(i + 7)}); a != want {
				t.Errorf("alarm %v, want %v", a, want)
			}
		}
	}
	if len(found) != 3 {
		t.Errorf("reported: %v", found)
	}
}

// The block of the first objects is next to the host record, and a search for marks of imports ends in it.
func TestStoreOpensWithDamageAtTheFirstObjects(t *testing.T) {
	fs := damagedStore(t, false)
	flip(t, fs, damagedAt(t, noise(1000, 0)[:100]))
	var found []Damage
	s := open(t, fs, Options{OnDamage: func(d Damage) { found = append(found, d) }})
	if len(found) != 1 {
		t.Errorf("Open reported %v, want one damaged block", found)
	}
	if bad := readAll(t, s); len(bad) == 0 || len(bad) > 100 {
		t.Errorf("%d objects cannot be read", len(bad))
	}
}

// A mark of an import is known although the block before it is damaged.
func TestImportMarkAfterDamageIsRead(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	b := pebbleDB(s).NewBatch()
	for i := range 300 { // many blocks
		if err := b.Set(importingKey(ID{"c", fmt.Sprintf("n%03d%x", i, noise(100, uint64(i)))}), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := pebbleDB(s).Apply(b, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, fs, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, fs, third)
	s = open(t, fs, Options{})
	if n := len(s.importing.ids); n < 200 || n == 300 {
		t.Errorf("%d of 300 marks are known", n)
	}
	if last := (ID{"c", fmt.Sprintf("n299%x", noise(100, 299))}); !s.Importing(last) {
		t.Error("the last mark is not known")
	}
}

// Damage in the properties of a table makes the whole table unreadable. This one has the host record.
func TestCheckReportsDamageThatPreventsOpen(t *testing.T) {
	fs := damagedStore(t, true)
	s := open(t, fs, Options{})
	if err := pebbleDB(s).Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	flip(t, fs, func(table []byte) int { return len(table) - 400 })
	if s, err := Open(dir, &Options{FS: fs}); s != nil || !errors.Is(err, ErrDamaged) || strings.Contains(err.Error(), "carrier") {
		t.Fatalf("Open: %v", err)
	}
	if stats := wantProblems(t, fs, "cannot be read"); stats.Problems == 0 {
		t.Errorf("check: %+v", stats)
	}
}

// TestExportOfADamagedObjectFails exports an object with a damaged block in the middle of its rows.
func TestExportOfADamagedObjectFails(t *testing.T) {
	const rows = 60
	fs := NewMemFS()
	s := open(t, fs, Options{})
	o := s.live("c", "o")
	for i := range uint64(rows) {
		o.put(t, fmt.Sprintf("k%02d", i), noise(5000, i))
	}
	o.commit(t)
	for range 2 { // the second one flushes the log into a table
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, fs, Options{})
	}
	s.Abandon()
	flip(t, fs, damagedAt(t, noise(5000, rows/2)[2000:2100]))
	s = open(t, fs, Options{ReadOnly: true})
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	var out bytes.Buffer
	if err := sn.Export(ID{"c", "o"}, &out); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "c/o") {
		t.Errorf("export: %v", err)
	}
	if n := out.Len(); n < 5000 {
		t.Errorf("the export has failed after %d bytes, want some of the rows before the damaged block", n)
	}
}

// TestCheckEndsWithItsContext ends the context at the first problem.
func TestCheckEndsWithItsContext(t *testing.T) {
	fs := damagedStore(t, false)
	flip(t, fs, third)
	s := open(t, fs, Options{ReadOnly: true})
	whole, err := s.Check(t.Context(), func(Problem) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stats, err := s.Check(ctx, func(Problem) { cancel() })
	if !errors.Is(err, context.Canceled) || stats.Bytes == 0 || stats.Bytes >= whole.Bytes {
		t.Errorf("Check: %d of %d bytes, %v", stats.Bytes, whole.Bytes, err)
	}
}
