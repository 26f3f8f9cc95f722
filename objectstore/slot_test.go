package objectstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func due(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func (s *Store) alarmIndex(t *testing.T) (list []string) {
	t.Helper()
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	classes, err := sn.AlarmClasses()
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range append(classes, "") {
		var at AlarmPos
		for {
			// Pages of two, so that the position matters.
			page, next, err := sn.Alarms(class, at, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, a := range page {
				if a.Suspect != (class == "") {
					t.Errorf("%+v is of index %q", a, class)
				}
				list = append(list, fmt.Sprintf("%s@%d#%d", a.ID, a.Due.UnixMilli(), a.Generation))
				if a.Suspect {
					list[len(list)-1] = "suspect " + list[len(list)-1]
				}
			}
			at = next
		}
	}
	for _, class := range classes {
		starts, err := sn.StartAlarms(class, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range starts {
			list = append(list, fmt.Sprintf("start %s@%d#%d", a.ID, a.Due.UnixMilli(), a.Generation))
		}
	}
	for p, err := range sn.Parked("", ID{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("parked %s@%d#%d", p.ID, p.Slot.Due.UnixMilli(), p.Slot.Generation))
	}
	return list
}

func TestSlotAndIndexChangeTogether(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	check := func(want ...string) {
		t.Helper()
		if got := s.alarmIndex(t); !slices.Equal(got, want) {
			t.Errorf("index %q, want %q", got, want)
		}
		wantConsistent(t, s)
	}
	a, b := s.live("c", "a"), s.live("c", "b")
	a.SetSlot(Slot{Due: due(2000), Generation: 1})
	a.commit(t)
	b.SetSlot(Slot{Due: due(1000), Generation: 2, AtStart: true})
	b.commit(t)
	check("c/b@1000#2", "c/a@2000#1", "start c/b@1000#2")

	// Many settings in one record leave one entry.
	for i := range 10 {
		a.SetSlot(Slot{Due: due(3000 + int64(i)), Generation: uint64(10 + i), AtStart: i%2 == 0})
	}
	a.commit(t)
	check("c/b@1000#2", "c/a@3009#19", "start c/b@1000#2")

	b.ClearSlot()
	b.commit(t)
	check("c/a@3009#19")

	a.SetSlot(Slot{Due: due(-5), Generation: 20, Attempt: 3})
	a.put(t, "n", "1")
	a.commit(t)
	check("c/a@-5#20")
	if got, ok, err := a.Slot(); err != nil || !ok || got != (Slot{Due: due(-5), Generation: 20, Attempt: 3}) {
		t.Errorf("slot %+v, %v, %v", got, ok, err)
	}

	if err := a.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := a.Slot(); ok {
		t.Error("the slot outlived DeleteAll within the batch")
	}
	a.commit(t)
	check()
	if _, ok, _ := a.Slot(); ok {
		t.Error("the slot outlived DeleteAll")
	}
}

// TestSlotMovesBetweenIndexes takes an alarm through all states, in each with and without AtStart.
func TestSlotMovesBetweenIndexes(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	a, b := s.live("c", "a"), s.live("d", "b")
	b.SetSlot(Slot{Due: due(3), Generation: 1})
	b.commit(t)
	charge := Charge{Host: 4, Begun: true, Deaths: 1, Lost: 2}
	want := map[string][]string{
		"ready false": {"c/a@5#2", "d/b@3#1"}, "ready true": {"c/a@5#2", "d/b@3#1", "start c/a@5#2"},
		"suspect false": {"d/b@3#1", "suspect c/a@5#2"}, "suspect true": {"d/b@3#1", "suspect c/a@5#2"},
		"parked false": {"d/b@3#1", "parked c/a@5#2"}, "parked true": {"d/b@3#1", "parked c/a@5#2"},
	}
	for from := range want {
		for to, index := range want {
			for _, state := range []string{from, to} {
				slot := Slot{Due: due(5), Generation: 2, AtStart: strings.HasSuffix(state, "true"), Attempt: 1, Error: "no"}
				switch kind, _, _ := strings.Cut(state, " "); kind {
				case "suspect":
					slot.Charge = charge
				case "parked":
					slot.Charge, slot.Parked = charge, ParkedDeaths
				}
				a.SetSlot(slot)
				a.commit(t)
				if got, ok, err := s.snapshot(t).Slot(a.id); got != slot || !ok || err != nil {
					t.Errorf("%s: slot %+v, %v, %v; want %+v", state, got, ok, err, slot)
				}
			}
			if got := s.alarmIndex(t); !slices.Equal(got, index) {
				t.Errorf("%s, then %s: index %q, want %q", from, to, got, index)
			}
			wantConsistent(t, s)
		}
	}
	a.ClearSlot()
	a.commit(t)
	if got := s.alarmIndex(t); !slices.Equal(got, []string{"d/b@3#1"}) {
		t.Errorf("cleared: index %q", got)
	}
	wantConsistent(t, s)
}

// TestAlarmsParkedAreListed counts the reads of listing a few parked alarms among many others.
func TestAlarmsParkedAreListed(t *testing.T) {
	var reads Reads
	s := open(t, NewMemFS(), Options{Reads: &reads})
	for i := range 600 {
		o := s.live([]string{"c", "d", "e"}[i%3], fmt.Sprintf("%03d", i))
		slot := Slot{Due: due(int64(i)), Generation: 1}
		if i >= 594 {
			slot.Parked = ParkedFailed
		}
		o.SetSlot(slot)
		o.commit(t)
	}
	sn := s.snapshot(t)
	for _, c := range []struct {
		class string
		after ID
		want  string
	}{
		{"", ID{}, "[c/594 c/597 d/595 d/598 e/596 e/599]"},
		{"", ID{"c", "597"}, "[d/595 d/598 e/596 e/599]"},
		{"d", ID{}, "[d/595 d/598]"},
		{"d", ID{"d", "595"}, "[d/598]"},
		{"d", ID{"c", "595"}, "[d/595 d/598]"},
		{"d", ID{"e", "1"}, "[]"},
		{"no", ID{}, "[]"},
	} {
		gets, steps := reads.Gets.Load(), reads.Steps.Load()
		var got []ID
		for p, err := range sn.Parked(c.class, c.after) {
			if err != nil || p.Slot.Parked != ParkedFailed {
				t.Fatal(p, err)
			}
			got = append(got, p.ID)
		}
		gets, steps = reads.Gets.Load()-gets, reads.Steps.Load()-steps
		if fmt.Sprint(got) != c.want || gets != int64(len(got)) || steps > int64(len(got)+1) {
			t.Errorf("class %q after %v: %v by %d look-ups and %d steps, want %s", c.class, c.after, got, gets, steps, c.want)
		}
	}
}

// TestSlotErrorIsBounded sets a long text that does not end with a whole character.
func TestSlotErrorIsBounded(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	o.SetSlot(Slot{Due: due(1), Error: "x" + strings.Repeat("é", MaxSlotError)})
	o.commit(t)
	got, _, err := s.snapshot(t).Slot(o.id)
	if want := "x" + strings.Repeat("é", MaxSlotError/2-1); got.Error != want || err != nil {
		t.Errorf("%d bytes: %q, %v", len(got.Error), got.Error, err)
	}
}

func TestSlotIsNeverEarly(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	at := time.UnixMilli(5).Add(time.Nanosecond)
	o.SetSlot(Slot{Due: at})
	for range 2 {
		got, _, err := o.Slot()
		if err != nil || got.Due != due(6) {
			t.Errorf("slot for %v is due %v, %v", at, got.Due, err)
		}
		o.commit(t)
	}
}

func TestAlarmChangesPrecedeOutputs(t *testing.T) {
	j := new(releaseLog)
	o := Options{OnAlarms: func(cs []AlarmChange) {
		for _, c := range cs {
			j.note(fmt.Sprintf("%s %d %v", c.ID, c.Slot.Generation, c.Set))
		}
	}}
	held(t, o, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		a := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		a.SetSlot(Slot{Due: due(1), Generation: 1})
		a.Emit(entry{j, "set"})
		a.commitBatch(t)
		j.want(t)
		release()
		j.want(t, "c/a 1 true", "set")

		a.ClearSlot()
		a.Emit(entry{j, "cleared"})
		a.commitBatch(t)
		j.want(t, "c/a 0 false", "cleared")

		// Nothing was set, so nothing changes.
		a.ClearSlot()
		if err := a.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		a.commitBatch(t)
		j.want(t)
	})
}

func TestAlarmGenerationsRise(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	var last uint64
	for range 2 {
		for range 3 {
			g := s.NewAlarmGeneration()
			if g <= last {
				t.Fatalf("generation %d after %d", g, last)
			}
			last = g
		}
		s.Abandon()
		s = open(t, fs.Crash(0, 0), Options{})
	}
}
