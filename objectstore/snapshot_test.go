package objectstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func (s *Store) snapshot(t *testing.T) *Snapshot {
	t.Helper()
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sn.Close)
	return sn
}

func TestSnapshotContainsOnlyDurableState(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		o.SetSlot(Slot{Due: due(1), Generation: 1})
		o.commit(t)
		release := fs.HoldSyncs()
		o.SetSlot(Slot{Due: due(2), Generation: 2})
		o.commitBatch(t)
		synctest.Wait()

		// The record is applied, and could still be lost.
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error, 1)
		go func() {
			_, err := s.Snapshot(ctx)
			refused <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("snapshot while a record is in flight: %v", err)
		}

		got := make(chan *Snapshot, 1)
		go func() { got <- s.snapshot(t) }()
		synctest.Wait()
		// A commit now goes into the next record.
		o.SetSlot(Slot{Due: due(3), Generation: 3})
		o.commitBatch(t)
		again := fs.HoldSyncs()
		release()
		sn := <-got
		again()
		synctest.Wait()
		if slot, ok, err := sn.Slot(o.id); err != nil || !ok || slot.Generation != 2 {
			t.Errorf("slot %+v, %v, %v; want that of the record that became durable", slot, ok, err)
		}
		if slot, _, _ := s.snapshot(t).Slot(o.id); slot.Generation != 3 {
			t.Errorf("slot %+v in a later snapshot", slot)
		}
		for range 20 {
			if _, err := s.Snapshot(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("snapshot with a cancelled context: %v", err)
			}
		}
	})
}

func TestSnapshotListsClassesAndObjects(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	for _, id := range []string{"a/x", "ab/x", "a b/1", "b/1", "b/11", "b/2", "b/é", "c/alarm only"} {
		id, err := ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		o := s.live(id.Class, id.Name)
		if id.Class == "c" {
			o.SetSlot(Slot{Due: due(1)})
		} else {
			for i := range 20 {
				o.put(t, fmt.Sprint(i), "v")
			}
		}
		o.commit(t)
	}
	sn := s.snapshot(t)
	var classes []string
	for c, err := range sn.Classes() {
		if err != nil {
			t.Fatal(err)
		}
		classes = append(classes, c)
	}
	if want := []string{"a", "a b", "ab", "b", "c"}; !slices.Equal(classes, want) {
		t.Errorf("classes %q, want %q", classes, want)
	}
	for _, c := range []struct {
		class, after string
		want         []string
	}{
		{"b", "", []string{"1", "11", "2", "é"}},
		{"b", "1", []string{"11", "2", "é"}},
		{"b", "10", []string{"11", "2", "é"}},
		{"b", "é", nil},
		{"a", "", []string{"x"}},
		{"c", "", []string{"alarm only"}},
		{"d", "", nil},
	} {
		var got []string
		for id, err := range sn.Objects(c.class, c.after) {
			if err != nil || id.Class != c.class {
				t.Fatal(id, err)
			}
			got = append(got, id.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("objects of %s after %q: %q, want %q", c.class, c.after, got, c.want)
		}
	}
	for id, want := range map[ID]bool{{"b", "1"}: true, {"c", "alarm only"}: true, {"b", "10"}: false, {"b", ""}: false} {
		if got, err := sn.Exists(id); err != nil || got != want {
			t.Errorf("Exists(%v) = %v, %v", id, got, err)
		}
		if got, err := s.HasRows(id); err != nil || got != want {
			t.Errorf("HasRows(%v) = %v, %v", id, got, err)
		}
	}
	for range sn.Objects("b", "") {
		break // leaves no iterator open: the store closes without a leak
	}
	sn.Close()
	sn.Close()
	if _, err := sn.Exists(ID{"b", "1"}); !errors.Is(err, ErrFenced) {
		t.Errorf("closed snapshot: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.HasRows(ID{"b", "1"}); !errors.Is(err, ErrFenced) {
		t.Errorf("closed store: %v", err)
	}
}

func TestStartAlarmsAreReadInPages(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	for i := range 5 {
		o := s.live("c", fmt.Sprint(i))
		o.SetSlot(Slot{Due: due(int64(100 - i)), Generation: uint64(i), AtStart: i != 2})
		o.commit(t)
	}
	sn := s.snapshot(t)
	after := ""
	var got []string
	for {
		page, err := sn.StartAlarms("c", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, a := range page {
			got = append(got, fmt.Sprintf("%s@%d", a.ID, a.Due.UnixMilli()))
			after = a.ID.Name
		}
	}
	if want := []string{"c/0@100", "c/1@99", "c/3@97", "c/4@96"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, at, err := sn.Alarms("c", AlarmPos{key: "b"}, 1); err != nil || at.key != "b" {
		t.Errorf("position beyond the last alarm: %q, %v", at.key, err)
	}
}

func TestBackupContainsOnlyDurableState(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		o.put(t, "n", "1")
		o.Emit(entry{j, "durable"})
		o.commitBatch(t)
		synctest.Wait()
		go func() {
			if err := s.Backup(t.Context(), "/backup"); err != nil {
				t.Error(err)
			}
			j.note("backup")
		}()
		j.want(t)
		// A failing disk would lose the record that the copy was to hold.
		if names, _ := fs.base.List("/backup"); slices.Contains(names, dbName) {
			t.Error("the copy was begun while a record is in flight")
		}
		release()
		synctest.Wait()
		if !slices.Contains(j.lines, "backup") {
			t.Error("the backup hangs")
		}
	})
}

func TestBackup(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	o := s.live("c", "a")
	o.put(t, "n", "1")
	o.commit(t)
	if err := s.Backup(t.Context(), "/backups/one"); err != nil {
		t.Fatal(err)
	}
	o.put(t, "n", "2")
	o.commit(t)
	if err := s.Backup(t.Context(), "/backups/one"); err == nil {
		t.Error("a backup was overwritten")
	}
	f, err := fs.base.Create("/file", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), "/"); err == nil {
		t.Error("a backup went among other files")
	}
	// The backup is durable by itself.
	b, err := Open("/backups/one", &Options{FS: fs.Crash(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abandon()
	b.live("c", "a").want(t, "n", "1")
	wantConsistent(t, b)
	o.want(t, "n", "2")
}

// TestRecordOfCloseWaitsForASnapshot closes a store while a snapshot is taken: the record of the clean end is readable before it is
// durable, so the snapshot would contain it.
func TestRecordOfCloseWaitsForASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shipTo(t, NewMemFS(), newMemArchive())
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := s.Stats().Ship.Record
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		time.Sleep(time.Second)
		if made := s.Stats().Ship.Record; made != before {
			t.Errorf("record %d was made during a snapshot", made)
		}
		s.release()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
	})
}
