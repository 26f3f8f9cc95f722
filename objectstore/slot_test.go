package objectstore

import (
	"fmt"
	"slices"
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
	var at AlarmPos
	for {
		// Pages of two, so that the position matters.
		page, next, err := sn.Alarms(at, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, a := range page {
			list = append(list, fmt.Sprintf("%s@%d#%d", a.ID, a.Due.UnixMilli(), a.Generation))
		}
		at = next
	}
	boot, err := sn.BootAlarms(ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range boot {
		list = append(list, fmt.Sprintf("boot %s@%d#%d", a.ID, a.Due.UnixMilli(), a.Generation))
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
		wantSound(t, s)
	}
	a, b := s.live("c", "a"), s.live("c", "b")
	a.SetSlot(Slot{Due: due(2000), Generation: 1})
	a.commit(t)
	b.SetSlot(Slot{Due: due(1000), Generation: 2, AtBoot: true})
	b.commit(t)
	check("c/b@1000#2", "c/a@2000#1", "boot c/b@1000#2")

	// Many settings in one record leave one entry.
	for i := range 10 {
		a.SetSlot(Slot{Due: due(3000 + int64(i)), Generation: uint64(10 + i), AtBoot: i%2 == 0})
	}
	a.commit(t)
	check("c/b@1000#2", "c/a@3009#19", "boot c/b@1000#2")

	b.ClearSlot()
	b.commit(t)
	check("c/a@3009#19")

	a.SetSlot(Slot{Due: due(-5), Generation: 20, Attempt: 3, Raised: true})
	a.put(t, "n", "1")
	a.commit(t)
	check("c/a@-5#20")
	if got, ok, err := a.Slot(); err != nil || !ok || got != (Slot{Due: due(-5), Generation: 20, Attempt: 3, Raised: true}) {
		t.Errorf("slot %+v, %v, %v", got, ok, err)
	}

	if err := a.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := a.Slot(); ok {
		t.Error("the slot outlived DeleteAll within the segment")
	}
	a.commit(t)
	check()
	if _, ok, _ := a.Slot(); ok {
		t.Error("the slot outlived DeleteAll")
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

func TestAlarmChangesComeBeforeOutputs(t *testing.T) {
	j := new(journal)
	o := Options{OnAlarms: func(cs []AlarmChange) {
		for _, c := range cs {
			j.note(fmt.Sprintf("%s %d %v", c.ID, c.Slot.Generation, c.Set))
		}
	}}
	held(t, o, func(t *testing.T, s *Store, fs *FS, _ *journal) {
		a := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		a.SetSlot(Slot{Due: due(1), Generation: 1})
		a.Emit(entry{j, "set"})
		a.handOver(t)
		j.want(t)
		release()
		j.want(t, "c/a 1 true", "set")

		a.ClearSlot()
		a.Emit(entry{j, "cleared"})
		a.handOver(t)
		j.want(t, "c/a 0 false", "cleared")

		// Nothing was set, so nothing changes.
		a.ClearSlot()
		if err := a.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		a.handOver(t)
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
