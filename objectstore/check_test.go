package objectstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// wantConsistent fails the test if Check reports a problem.
func wantConsistent(t testing.TB, s *Store) CheckStats {
	t.Helper()
	stats, err := s.Check(t.Context(), func(p Problem) { t.Errorf("check: %v", p) })
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func TestCheckFindsDamage(t *testing.T) {
	id := ID{"c", "a"}
	slot := Slot{Due: due(7), Generation: 3, AtStart: true}
	entry := indexEntry{dueMS: 7, generation: 3}
	unknown := func(b []byte) []byte { b[0] = 99; return b }
	for _, c := range []struct {
		name  string
		wreck func(b *pebble.Batch) error
		want  string
	}{
		{"none", func(*pebble.Batch) error { return nil }, ""},
		{"index entry gone", func(b *pebble.Batch) error { return b.Delete(alarmKey(7, id), nil) }, "it will not fire"},
		{"start entry gone", func(b *pebble.Batch) error { return b.Delete(startKey(id), nil) }, "not in the start index"},
		{"slot gone", func(b *pebble.Batch) error { return b.Delete(slotKey(id), nil) }, "without an alarm"},
		{"slot of unknown version", func(b *pebble.Batch) error {
			return b.Set(slotKey(id), unknown(encodeSlot(slot)), nil)
		}, "version 99"},
		{"slot without start", func(b *pebble.Batch) error {
			s := slot
			s.AtStart = false
			return b.Set(slotKey(id), encodeSlot(s), nil)
		}, "not delivered when the host starts"},
		{"second index entry", func(b *pebble.Batch) error {
			return b.Set(alarmKey(8, id), indexEntry{dueMS: 8, generation: 3}.encode(), nil)
		}, "differs from the alarm"},
		{"index entry with a wrong time", func(b *pebble.Batch) error {
			return b.Set(alarmKey(8, id), entry.encode(), nil)
		}, "differs from the alarm"},
		{"index entry of unknown version", func(b *pebble.Batch) error {
			return b.Set(alarmKey(7, id), unknown(entry.encode()), nil)
		}, "version 99"},
		{"index entry of another generation", func(b *pebble.Batch) error {
			return b.Set(alarmKey(7, id), indexEntry{dueMS: 7, generation: 4}.encode(), nil)
		}, "differs from the alarm"},
		{"entry in another index", func(b *pebble.Batch) error {
			return b.Set(suspectKey(7, id), entry.encode(), nil)
		}, "differs from the alarm"},
		{"entry of a parked alarm", func(b *pebble.Batch) error {
			return b.Set(parkedKey(id), entry.encode(), nil)
		}, "differs from the alarm"},
		{"slot that is parked", func(b *pebble.Batch) error {
			s := slot
			s.Parked = ParkedFailed
			return b.Set(slotKey(id), encodeSlot(s), nil)
		}, "it will not be listed"},
		{"suspect key", func(b *pebble.Batch) error { return b.Set([]byte("q123"), nil, nil) }, "suspects' index key"},
		{"parked key", func(b *pebble.Batch) error { return b.Set([]byte("pc\x00"), nil, nil) }, "parked index key"},
		{"alarm key", func(b *pebble.Batch) error { return b.Set([]byte("a123"), nil, nil) }, "alarm index key"},
		{"start key", func(b *pebble.Batch) error { return b.Set([]byte("bc\x00"), nil, nil) }, "start index key"},
		{"mark", func(b *pebble.Batch) error { return b.Set([]byte("ic\x00a\x00x"), nil, nil) }, "unfinished import"},
		{"object key", func(b *pebble.Batch) error { return b.Set([]byte("oc"), nil, nil) }, "object key"},
		{"name", func(b *pebble.Batch) error { return b.Set([]byte("oc\x00\x01\x00kx"), nil, nil) }, "control character"},
		{"space", func(b *pebble.Batch) error { return b.Set([]byte("oc\x00a\x00zx"), nil, nil) }, "row of unknown kind"},
		{"kind", func(b *pebble.Batch) error { return b.Set([]byte("zzz"), nil, nil) }, "key of unknown kind"},
		{"host record", func(b *pebble.Batch) error { return b.Set([]byte{keyHost}, []byte{99}, nil) }, "version 99"},
		{"no host record", func(b *pebble.Batch) error { return b.Delete([]byte{keyHost}, nil) }, "no host record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, NewMemFS(), Options{})
			o := s.live(id.Class, id.Name)
			o.put(t, "n", "1")
			o.SetSlot(slot)
			o.commit(t)
			b := pebbleDB(s).NewBatch()
			if err := c.wreck(b); err != nil {
				t.Fatal(err)
			}
			if err := pebbleDB(s).Apply(b, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			var found []string
			stats, err := s.Check(t.Context(), func(p Problem) { found = append(found, p.String()) })
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(found, "\n")
			if int(stats.Problems) != len(found) || (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
				t.Errorf("found %d problems: %q; want %q", stats.Problems, all, c.want)
			}
		})
	}
}

func TestCheckCounts(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	for _, name := range []string{"a", "b"} {
		o := s.live("c", name)
		o.put(t, "x", "1")
		o.put(t, "y", "1")
		o.SetSlot(Slot{Due: due(1)})
		o.commit(t)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := wantConsistent(t, open(t, fs, Options{ReadOnly: true}))
	if got.Objects != 2 || got.Rows != 4 || got.Alarms != 2 || got.Bytes == 0 || got.Importing != 0 {
		t.Errorf("counted %+v", got)
	}
}

func TestProblemNamesObjectAndKey(t *testing.T) {
	for want, p := range map[string]Problem{
		"no host record":       {Detail: "no host record"},
		`key "k": is bad`:      {Key: []byte("k"), Detail: "is bad"},
		"c/a: is bad":          {Object: ID{"c", "a"}, Detail: "is bad"},
		`c/a: key "k": is bad`: {Object: ID{"c", "a"}, Key: []byte("k"), Detail: "is bad"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCheckEndsWithAnErrorOfASlot checks an index entry with a slot that cannot be read, without damage: the snapshot is closed.
func TestCheckEndsWithAnErrorOfASlot(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	o.SetSlot(Slot{Due: due(1)})
	o.commit(t)
	sn := s.snapshot(t)
	w, err := sn.walk([]byte{keyAlarm}, []byte{keyAlarm + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if ok, err := w.first(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	sn.Close()
	c := &checker{sn: sn, w: w, report: func(p Problem) { t.Error(p) }}
	if err := c.key(); !errors.Is(err, ErrFenced) {
		t.Errorf("the check continues: %v", err)
	}
}
