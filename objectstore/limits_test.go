package objectstore

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPutLimits(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	key, value := strings.Repeat("k", MaxKey), strings.Repeat("v", MaxValue)
	for _, c := range []struct {
		key, value string
		want       string
	}{
		{"", "v", "dohost: empty key"},
		{key + "k", "v", "dohost: key has 2049 bytes, the limit is 2048"},
		{"k", value + "v", "dohost: value has 2097153 bytes, the limit is 2097152"},
		{key, value, ""},
		{"empty value", "", ""},
	} {
		err := o.Put(SpaceKV, []byte(c.key), []byte(c.value), false)
		var limit *LimitError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &limit) || err.Error() != c.want) {
			t.Errorf("Put of %d, %d bytes: %v; want %s", len(c.key), len(c.value), err, c.want)
		}
	}
	if err := o.Delete(SpaceKV, nil, false); err == nil {
		t.Error("an empty key can be deleted")
	}
	for i := range 6 {
		o.put(t, fmt.Sprint(i), value)
	}
	var limit *LimitError
	if err := o.Put(SpaceKV, []byte("6"), []byte(value), false); !errors.As(err, &limit) || limit.Subject != "batch" {
		t.Errorf("batch beyond its limit: %v", err)
	}
	// Writing a row again needs no room, and a refused write leaves no trace.
	o.put(t, "5", value)
	o.absent(t, "6")
	o.commit(t)
	o.want(t, "empty value", "")
	o.want(t, key, value)
}

func TestPutRefusedOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		var reported []DiskSpace
		s := open(t, fs, Options{ReserveBytes: 1000, OnSpace: func(d DiskSpace) { reported = append(reported, d) }})
		o := s.live("c", "a")
		o.put(t, "n", "1")
		fs.SetFree(999)
		time.Sleep(spaceCheckEvery)
		o.commit(t) // the committer checks the disk
		if err := o.Put(SpaceKV, []byte("n"), []byte("2"), false); !errors.Is(err, ErrNoSpace) {
			t.Errorf("Put on a full disk: %v", err)
		}
		// Operations that free space are accepted.
		if err := o.Delete(SpaceKV, []byte("n"), false); err != nil {
			t.Error(err)
		}
		o.commit(t)
		fs.SetFree(1000)
		time.Sleep(spaceRecheck)
		o.put(t, "n", "3")
		o.commit(t)
		if want := []DiskSpace{{dir, true, 999, 1000, nil}, {dir, false, 1000, 1000, nil}}; !slices.Equal(reported, want) {
			t.Errorf("reported %+v, want %+v", reported, want)
		}

		fs.SetFree(0)
		s.Abandon()
		s = open(t, fs, Options{ReserveBytes: -1})
		time.Sleep(spaceCheckEvery)
		o = s.live("c", "a")
		o.put(t, "n", "4")
		o.commit(t)
		o.put(t, "n", "5")
		s.Abandon()
		fs.SetFree(4*64<<20 - 1)
		s = open(t, fs, Options{})
		o = s.live("c", "a")
		if err := o.Put(SpaceKV, []byte("n"), []byte("6"), false); !errors.Is(err, ErrNoSpace) {
			t.Errorf("Put on a disk that was full at Open: %v", err)
		}
		fs.SetFree(4 * 64 << 20)
		time.Sleep(spaceRecheck)
		o.put(t, "n", "7")
		o.commit(t)
	})
}

// TestReserveFollowsTheMemTable checks that the reserve covers the log and a concurrent flush.
func TestReserveFollowsTheMemTable(t *testing.T) {
	for _, c := range []struct{ memTable, reserve, want int64 }{
		{0, 0, 256 << 20},
		{128 << 20, 0, 512 << 20},
		{1 << 20, 0, 64 << 20},
		{0, 1000, 1000},
		{0, -1, -1},
	} {
		o := Options{MemTable: c.memTable, ReserveBytes: c.reserve}
		if got := o.withDefaults().ReserveBytes; got != c.want {
			t.Errorf("memtables of %d, reserve %d: %d bytes, want %d", c.memTable, c.reserve, got, c.want)
		}
	}
}

func TestSyncStallIsReportedWithItsDuration(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		if d := s.Stalled(); d != 0 {
			t.Errorf("stalled for %v at rest", d)
		}
		release := fs.HoldSyncs()
		o := s.live("c", "a")
		o.put(t, "n", "1")
		o.commitBatch(t)
		synctest.Wait()
		time.Sleep(31 * time.Second)
		if d := s.Stalled(); d != 31*time.Second {
			t.Errorf("stalled for %v, want 31s", d)
		}
		for name, want := range map[string]bool{"a": true, "b": false} { // without a wait for the record in flight
			if ok, err := s.HasRows(ID{Class: "c", Name: name}); err != nil || ok != want {
				t.Errorf("HasRows of %s = %v, %v", name, ok, err)
			}
		}
		release()
		synctest.Wait()
		if d := s.Stalled(); d != 0 {
			t.Errorf("stalled for %v after the sync", d)
		}
	})
}

func TestCommitsShareOneSync(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		release := fs.HoldSyncs()
		before := fs.Syncs()
		o := s.live("c", "a")
		const n = 1000
		left := make(token, n)
		for i := range n {
			left <- struct{}{}
			o.put(t, "n", fmt.Sprint(i))
			o.Emit(left)
			o.commitBatch(t)
			if i == 0 {
				synctest.Wait() // a record of its own
			}
		}
		release()
		synctest.Wait()
		if len(left) > 0 {
			t.Errorf("%d outputs are withheld", len(left))
		}
		if syncs := fs.Syncs() - before; syncs != 2 {
			t.Errorf("%d hand-overs cost %d syncs, want 2", n, syncs)
		}
		st := s.Stats()
		if st.Records != 2 || st.Batches != n || st.Undurable != 0 || st.Bytes > 1000 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestRecordSizeIsBounded(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		release := fs.HoldSyncs()
		first := s.live("c", "first")
		first.put(t, "n", "1")
		first.commitBatch(t)
		synctest.Wait()
		for i := range 6 {
			o := s.live("c", fmt.Sprint(i))
			o.put(t, "n", strings.Repeat("x", 400<<10))
			o.commitBatch(t)
		}
		release()
		synctest.Wait()
		// 400 KiB each: three reach 1 MiB.
		if st := s.Stats(); st.Records != 3 {
			t.Errorf("%d records, want 3", st.Records)
		}
	})
}

func TestHookIsCalledAtEachStage(t *testing.T) {
	j := new(releaseLog)
	note := func(s Stage, objects iter.Seq[ID]) {
		for id := range objects {
			j.note([]string{"take ", "sync ", "durable "}[s] + id.Name)
		}
	}
	held(t, Options{Hook: note}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		o.put(t, "n", "1")
		o.Emit(entry{j, "out"})
		o.commitBatch(t)
		j.want(t, "take a", "sync a")
		release()
		j.want(t, "durable a", "out")
	})
}

// TestOptionOneObjectSplitsRecords commits several objects: each record has the writes of one.
func TestOptionOneObjectSplitsRecords(t *testing.T) {
	held(t, Options{OneObject: true}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		release := fs.HoldSyncs()
		defer release()
		for _, name := range []string{"a", "b", "c"} {
			o := s.live("c", name)
			o.put(t, "n", "1")
			o.commitBatch(t)
		}
		release()
		synctest.Wait()
		if st := s.Stats(); st.Records != 3 || st.Batches != 3 {
			t.Errorf("%+v, want 3 records of a batch each", st)
		}
	})
}
