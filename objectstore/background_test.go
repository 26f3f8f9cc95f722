package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// filled returns a file system with a store that was not closed and has some rows in its log.
func filled(t *testing.T) *FS {
	t.Helper()
	fs := NewMemFS()
	s := open(t, fs, Options{})
	for i := range 100 {
		o := s.live("c", fmt.Sprint(i))
		o.put(t, "k", noise(1000, uint64(i)))
		o.commit(t)
	}
	return fs.Crash(0, 0)
}

// onTables makes the named operations on tables fail.
func onTables(err error, ops ...string) func(op, path string, n int64) error {
	return func(op, path string, _ int64) error {
		for _, o := range ops {
			if op == o && strings.HasSuffix(path, ".sst") {
				return err
			}
		}
		return nil
	}
}

func TestOpenFailsWhenFlushFails(t *testing.T) {
	for _, c := range []struct {
		op  string
		err error
	}{
		{"create", syscall.ENOSPC}, // no inodes
		{"create", syscall.EACCES},
		{"write", syscall.ENOSPC},
		{"sync", syscall.EIO},
	} {
		t.Run(c.op+" "+c.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := filled(t)
				before := disk.Crash(100, 0)
				disk.OnWrite(onTables(c.err, c.op))
				var log bytes.Buffer
				s, err := Open(dir, &Options{FS: disk, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if s != nil || !errors.Is(err, c.err) || !strings.Contains(err.Error(), dir) {
					t.Fatalf("Open: %v, %v", s, err)
				}
				if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
					t.Errorf("the log has %d errors:\n%s", n, log.String())
				}
				synctest.Wait()
				if n := disk.Syncs(); n != before.Syncs() {
					t.Errorf("%d syncs of the log", n)
				}
				disk.OnWrite(nil)
				s, err = Open(dir, &Options{FS: disk}) // the lock was given back
				if err != nil {
					t.Fatal(err)
				}
				defer s.Abandon()
				for i := range 100 {
					s.live("c", fmt.Sprint(i)).want(t, "k", noise(1000, uint64(i)))
				}
				wantConsistent(t, s)
			})
		})
	}
}

func TestOpenFailsWithoutWritePermission(t *testing.T) {
	disk := filled(t)
	disk.FailWrites(fs.ErrPermission)
	if s, err := Open(dir, &Options{FS: disk}); s != nil || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Open: %v", err)
	}
}

// unreadable refuses to open tables for reading.
type unreadable struct {
	vfs.FS
	opens atomic.Int64
}

func (u *unreadable) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		u.opens.Add(1)
		<-time.After(time.Millisecond) // of virtual time: a loop without a pause lets the others run
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.FS.Open(name, o...)
}

func TestOpenFailsOnUnreadableTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := damagedStore(t, false)
		u := &unreadable{FS: disk.base}
		disk.base = u
		if s, err := Open(dir, &Options{FS: disk}); s != nil || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Open: %v", err)
		}
		if n := u.opens.Load(); n > 20 {
			t.Errorf("a table was opened %d times", n)
		}
	})
}

func TestFlushFailureIsRetriedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewMemFS()
		var log bytes.Buffer
		var reported []DiskSpace
		s := open(t, disk, Options{
			MemTable: 256 << 10, ReserveBytes: -1, OnSpace: func(d DiskSpace) { reported = append(reported, d) },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		o := s.live("c", "a")
		var creates atomic.Int64
		disk.OnWrite(func(op, path string, _ int64) error {
			if op != "create" || !strings.HasSuffix(path, ".sst") {
				return nil
			}
			creates.Add(1)
			return syscall.EMFILE
		})
		for i := range 500 { // fills a memtable, and not four
			o.put(t, fmt.Sprint(i), noise(1000, uint64(i)))
			o.commit(t)
		}
		time.Sleep(time.Minute)
		if n := creates.Load(); n < 30 || n > 100 {
			t.Errorf("the flush was tried %d times in a minute", n)
		}
		_ = o.Put(SpaceKV, []byte("x"), nil, false) // looks
		err := o.Put(SpaceKV, []byte("x"), nil, false)
		if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("Put: %v", err)
		}
		o.want(t, "7", noise(1000, 7))
		if err := o.Delete(SpaceKV, []byte("7"), false); err != nil {
			t.Error(err)
		}
		o.commit(t)

		disk.OnWrite(nil)
		time.Sleep(maxFlushPause + spaceRecheck)
		_ = o.Put(SpaceKV, []byte("x"), nil, false)
		o.put(t, "x", "y")
		o.commit(t)
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("the log has %d errors:\n%s", n, log.String())
		}
		if len(reported) != 2 || !reported[0].Full || !errors.Is(reported[0].Err, syscall.EMFILE) || reported[1].Full || reported[1].Err != nil {
			t.Errorf("OnSpace: %v", reported)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseReturnsWhileFlushFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewMemFS()
		s := open(t, disk, Options{MemTable: 256 << 10, ReserveBytes: -1})
		disk.OnWrite(onTables(syscall.EMFILE, "create"))
		o := s.live("c", "a")
		for i := range 500 {
			o.put(t, fmt.Sprint(i), noise(1000, uint64(i)))
			o.commit(t)
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		if err := s.Close(); err != nil || time.Since(begun) > 0 {
			t.Errorf("Close took %v: %v", time.Since(begun), err)
		}
		disk.OnWrite(nil)
		s = open(t, disk, Options{})
		s.live("c", "a").want(t, "499", noise(1000, 499))
	})
}

func TestCompactionOfDamagedBlockRetriesWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := damagedStore(t, false)
		flip(t, disk, third)
		s := open(t, disk, Options{MemTable: 256 << 10})
		for i := range 300 { // rows between those of the damaged table, so that both are compacted
			o := s.live("c", fmt.Sprintf("n%03d", i))
			o.put(t, "l", noise(1000, uint64(i)))
			o.commit(t)
		}
		time.Sleep(10 * time.Minute)
		s.background.mu.Lock()
		failed := s.background.compact.failed
		s.background.mu.Unlock()
		if failed == 0 || failed > 30 {
			t.Errorf("the compaction has failed %d times in ten minutes", failed)
		}
		if s.Err() != nil || s.Stats().Damaged != 1 {
			t.Errorf("%v, %d damaged blocks", s.Err(), s.Stats().Damaged)
		}
		for i := range 300 {
			s.live("c", fmt.Sprintf("n%03d", i)).want(t, "l", noise(1000, uint64(i)))
		}
		begun := time.Now()
		if err := s.Close(); err != nil || time.Since(begun) > 0 {
			t.Errorf("Close took %v: %v", time.Since(begun), err)
		}
	})
}

// The engine reads the properties of each table after Open, and repeats that.
func TestTablePropertiesDamageIsRetriedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewMemFS()
		s := open(t, disk, Options{})
		const objects = 40
		for i := range objects {
			o := s.live("c", fmt.Sprintf("n%03d", i))
			o.put(t, "k", noise(1<<20, uint64(i)))
			o.commit(t)
		}
		if err := pebbleDB(s).Compact(t.Context(), []byte("a"), []byte("z"), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		flipIn(t, disk, lastTable(t, disk), func(table []byte) int { return len(table) - 400 })

		s = open(t, disk, Options{})
		bad := 0
		for i := range objects {
			if _, _, err := s.live("c", fmt.Sprintf("n%03d", i)).Get(nil, SpaceKV, []byte("k")); errors.Is(err, ErrDamaged) {
				bad++
			} else if err != nil {
				t.Error(err)
			}
		}
		if bad == 0 || bad == objects {
			t.Errorf("%d of %d objects cannot be read", bad, objects)
		}
		time.Sleep(10 * time.Minute)
		s.background.mu.Lock()
		failed := s.background.statistics.failed
		s.background.mu.Unlock()
		if failed == 0 || failed > 30 {
			t.Errorf("the properties were read %d times in ten minutes", failed)
		}
	})
}

// The engine may report a failure with a lock held: only statistics pause where they are reported.
func TestEngineFailureReportDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := open(t, NewMemFS(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b, begun := &s.background, time.Now()
		b.compacted(syscall.EIO)
		b.compacted(nil) // another one, before the first is reported
		for range 10 {
			b.failed(syscall.EIO)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("the reports took %v", took)
		}
		if n := strings.Count(log.String(), "work of the engine"); n != 4 { // 1, 2, 4, 8
			t.Errorf("the log has %d errors:\n%s", n, log.String())
		}
	})
}

// lastTable returns the name of the table that was written last.
func lastTable(t *testing.T, disk *FS) string {
	t.Helper()
	names, err := disk.base.List(dir + "/db")
	if err != nil {
		t.Fatal(err)
	}
	last, tables := "", 0
	for _, n := range names {
		if strings.HasSuffix(n, ".sst") {
			last, tables = max(last, n), tables+1
		}
	}
	if tables < 2 {
		t.Fatalf("%d tables", tables)
	}
	return last
}
