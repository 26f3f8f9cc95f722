package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vmihailenco/msgpack/v5"
)

// exported returns a store with one object, and the object's export. The object has rows rows with values of size bytes, one row more,
// and a parked alarm.
func exported(t *testing.T, rows, size int) (*Store, ID, []byte) {
	t.Helper()
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "from")
	for i := range rows {
		if err := o.Put(SpaceKV, fmt.Appendf(nil, "%05d", i), bytes.Repeat([]byte{byte(i)}, size), false); err != nil {
			t.Fatal(err)
		}
		if o.Bytes() > 1<<20 {
			o.commit(t)
		}
	}
	o.put(t, "n", "1")
	o.SetSlot(Slot{
		Due: due(5), Generation: 1, Attempt: 2, AtStart: true,
		Charge: Charge{Host: 3, Begun: true, Deaths: 4, Lost: 5}, Parked: ParkedDeaths, Error: "no",
	})
	o.commit(t)
	var b bytes.Buffer
	if err := s.snapshot(t).Export(o.id, &b); err != nil {
		t.Fatal(err)
	}
	return s, o.id, b.Bytes()
}

func export(t *testing.T, s *Store, id ID) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.snapshot(t).Export(id, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExportImport(t *testing.T) {
	for _, c := range []struct{ rows, size, records int }{{0, 0, 1}, {10, 100, 1}, {50, 50_000, 5}} {
		_, _, stream := exported(t, c.rows, c.size)
		fs := NewMemFS()
		s := open(t, fs, Options{})
		to := ID{"d", "to"}
		if err := s.Import(t.Context(), to, iotest.OneByteReader(bytes.NewReader(stream))); err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Records; got != int64(c.records) {
			t.Errorf("import of %d rows took %d records, want %d", c.rows, got, c.records)
		}
		if s.Importing(to) {
			t.Error("still importing")
		}
		slot, ok, err := s.snapshot(t).Slot(to)
		want := Slot{
			Due: due(5), Generation: slot.Generation, Attempt: 2, AtStart: true,
			First:  Setting{due(5).UnixMilli(), 1},
			Charge: Charge{Deaths: 4, Lost: 5}, Parked: ParkedDeaths, Error: "no", // the host of the charge is of another store
		}
		if err != nil || !ok || slot != want || slot.Generation>>40 != s.Generation() {
			t.Errorf("slot %+v, %v, %v", slot, ok, err)
		}
		// The durable copy exports the same rows; the alarm has its own generation.
		s.Abandon()
		s = open(t, fs.Crash(0, 0), Options{})
		stats := wantConsistent(t, s)
		if stats.Rows != int64(c.rows)+1 || stats.Importing != 0 {
			t.Errorf("imported %+v", stats)
		}
		again := export(t, s, to)
		s2 := open(t, NewMemFS(), Options{})
		if err := s2.Import(t.Context(), to, bytes.NewReader(again)); err != nil {
			t.Fatal(err)
		}
		o := s2.live(to.Class, to.Name)
		for i := range c.rows {
			v, ok, err := o.Get(nil, SpaceKV, fmt.Appendf(nil, "%05d", i))
			if err != nil || !ok || !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, c.size)) {
				t.Fatalf("row %d: %d bytes, %v, %v", i, len(v), ok, err)
			}
		}
		o.want(t, "n", "1")
	}
}

func TestImportRequiresAbsentObject(t *testing.T) {
	s, id, stream := exported(t, 3, 10)
	if err := s.Import(t.Context(), id, bytes.NewReader(stream)); !errors.Is(err, ErrExists) {
		t.Errorf("import over an object: %v", err)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	to := ID{"c", "to"}
	go func() { done <- s.Import(t.Context(), to, r) }()
	// The first bytes have been read, so it is under way.
	if _, err := w.Write(stream[:5]); err != nil {
		t.Fatal(err)
	}
	if !s.Importing(to) {
		t.Error("not importing")
	}
	if err := s.Import(t.Context(), to, bytes.NewReader(stream)); !errors.Is(err, ErrExists) {
		t.Errorf("second import at once: %v", err)
	}
	if _, err := w.Write(stream[5:]); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := s.snapshot(t).Export(ID{"c", "none"}, &b); !errors.Is(err, ErrNoObject) || b.Len() > 0 {
		t.Errorf("export of nothing: %d bytes, %v", b.Len(), err)
	}
	var name *NameError
	if err := s.Import(t.Context(), ID{"c", ""}, &b); !errors.As(err, &name) {
		t.Errorf("import without a name: %v", err)
	}
}

// TestImportOfBrokenStreamLeavesNothing cuts the stream everywhere and flips a bit of every byte.
func TestImportOfBrokenStreamLeavesNothing(t *testing.T) {
	_, _, stream := exported(t, 3, 10)
	s := open(t, NewMemFS(), Options{})
	id := ID{"c", "to"}
	try := func(what string, b []byte, want ...error) {
		t.Helper()
		err := s.Import(t.Context(), id, bytes.NewReader(b))
		ok := false
		for _, w := range want {
			ok = ok || errors.Is(err, w)
		}
		if !ok {
			t.Errorf("%s: %v", what, err)
		}
		has, err := s.snapshot(t).hasRows(id)
		if err != nil || has || s.Importing(id) {
			t.Fatalf("%s: something is left", what)
		}
	}
	for i := range stream {
		try(fmt.Sprintf("cut at %d", i), stream[:i], ErrStream)
		bad := bytes.Clone(stream)
		bad[i] ^= 0x10
		try(fmt.Sprintf("byte %d flipped", i), bad, ErrStream, ErrFormat)
	}
	at := bytes.Index(stream, []byte(exportMagic)) + len(exportMagic) + 1 // after the format
	null := append(bytes.Clone(stream[:at]), frameRow, 0xc0)
	try("a row without a key", null, ErrStream)
	if err := s.Import(t.Context(), id, bytes.NewReader(null)); !strings.Contains(err.Error(), "a field is nil") {
		t.Errorf("a row without a key: %v", err)
	}
	row := func(key, value []byte) []byte {
		var b bytes.Buffer
		e := &exporter{enc: msgpack.NewEncoder(&b), sum: newChecksum()}
		e.frame(frameRow, key, value)
		return append(bytes.Clone(stream[:at]), b.Bytes()...)
	}
	try("a long key", row(bytes.Repeat([]byte("k"), MaxKey+2), []byte("v")), ErrStream)
	try("a feed of an unknown format", row(feedKey("f"), []byte{99}), ErrFormat)
	try("a later format", bytes.Replace(stream, []byte(exportMagic+"\x01"), []byte(exportMagic+"\x02"), 1), ErrFormat)
	if err := s.Import(t.Context(), id, bytes.NewReader(stream)); err != nil {
		t.Error(err)
	}
}

// TestImportFailureRemovesDurableRows fails after rows have become durable.
func TestImportFailureRemovesDurableRows(t *testing.T) {
	_, _, stream := exported(t, 50, 50_000)
	s := open(t, NewMemFS(), Options{})
	id := ID{"c", "to"}
	if err := s.Import(t.Context(), id, bytes.NewReader(stream[:len(stream)-1])); !errors.Is(err, ErrStream) {
		t.Errorf("cut at the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	half := io.MultiReader(bytes.NewReader(stream[:len(stream)/2]), readFunc(func([]byte) (int, error) {
		cancel()
		return 0, errDisk
	}))
	if err := s.Import(ctx, id, half); !errors.Is(err, errDisk) {
		t.Errorf("reader that fails: %v", err)
	}
	if stats := wantConsistent(t, s); stats.Objects != 0 || stats.Importing != 0 || s.Importing(id) {
		t.Errorf("left: %+v", stats)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// alarmFirst returns an export with the alarm before the rows: rows is their number, and size the size of each value.
func alarmFirst(t *testing.T, rows, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	e := &exporter{enc: msgpack.NewEncoder(&b), sum: newChecksum(), rows: uint64(rows)}
	e.do(e.enc.EncodeString(exportMagic))
	e.do(e.enc.EncodeUint(exportNumber))
	e.frame(frameSlot, encodeSlot(Slot{Due: due(5)}))
	for i := range rows {
		e.frame(frameRow, fmt.Appendf(nil, "k%05d", i), make([]byte, size))
	}
	if e.end(); e.err != nil {
		t.Fatal(e.err)
	}
	return b.Bytes()
}

// collectionOf returns the export of a collection that has an index and a feed: their entries come before the rows. rows is the number
// of rows, and size the size of each value.
func collectionOf(t *testing.T, rows, size int) []byte {
	t.Helper()
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "from")
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
	for i := range rows {
		o.putRow(t, logged, fmt.Sprintf("%05d", i), strings.Repeat("v", size), "status=open")
	}
	o.commit(t)
	return export(t, s, o.id)
}

// TestCrashDuringImport cuts the power between two records.
func TestCrashDuringImport(t *testing.T) {
	for name, stream := range map[string][]byte{
		"alarm first": alarmFirst(t, 50, 50_000),
		"collection":  collectionOf(t, 50, 50_000),
	} {
		t.Run(name, func(t *testing.T) { crashDuringImport(t, stream) })
	}
}

func crashDuringImport(t *testing.T, stream []byte) {
	t.Helper()
	fs := NewMemFS()
	s := open(t, fs, Options{})
	id := ID{"c", "to"}
	var crashed *FS
	rest := io.MultiReader(bytes.NewReader(stream[:len(stream)/2]), readFunc(func([]byte) (int, error) {
		if crashed == nil {
			crashed = fs.Crash(0, 0)
		}
		return 0, io.ErrUnexpectedEOF
	}))
	if err := s.Import(t.Context(), id, rest); err == nil {
		t.Fatal("half a stream was imported")
	}

	s = open(t, crashed, Options{})
	if !s.Importing(id) {
		t.Fatal("half an object is not marked")
	}
	sn := s.snapshot(t)
	if ok, err := sn.Exists(id); err != nil || ok {
		t.Errorf("half an object exists: %v", err)
	}
	if ok, err := s.HasRows(id); err != nil || ok {
		t.Errorf("half an object has rows: %v", err)
	}
	for id := range sn.Objects("c", "") {
		t.Errorf("half an object is listed: %v", id)
	}
	if alarms := s.alarmIndex(t); len(alarms) > 0 {
		t.Errorf("half an object has alarms: %q", alarms)
	}
	if err := sn.Export(id, io.Discard); !errors.Is(err, ErrNoObject) {
		t.Errorf("half an object is exported: %v", err)
	}
	if stats := wantConsistent(t, s); stats.Importing != 1 {
		t.Errorf("check: %+v", stats)
	}

	// A smaller object under the same name shows whether the remains were removed.
	_, _, small := exported(t, 2, 10)
	if err := s.Import(t.Context(), id, bytes.NewReader(small)); err != nil {
		t.Fatal(err)
	}
	if stats := wantConsistent(t, s); stats.Rows != 3 || stats.Importing != 0 || s.Importing(id) {
		t.Errorf("after the second import: %+v", stats)
	}
	// A third finds an object.
	if err := s.Import(t.Context(), id, strings.NewReader("")); !errors.Is(err, ErrExists) {
		t.Errorf("import over the second: %v", err)
	}
}
