package objectstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/dohost/dohost/internal/invariants"
)

// TestLogFileFailureFailsTheStore fails each operation on a log file, alone and with all later ones: also those of the
// rotation to the next log file, after which the engine would panic.
func TestLogFileFailureFailsTheStore(t *testing.T) {
	n := int64(1 << 30)
	ops := func(first, last int64) (fs *FS, ledgers []*ledger, kinds map[string]int, err error) {
		var mu sync.Mutex
		var seen int64
		fs, ledgers, kinds = NewMemFS(), []*ledger{{}, {}, {}}, map[string]int{}
		fs.OnWrite(func(op, path string, _ int64) error {
			if !strings.HasSuffix(path, ".log") || op == "remove" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			kinds[op]++
			if seen++; seen >= first && seen <= last {
				return errDisk
			}
			return nil
		})
		err = crashWorkload(t, dir, fs, ledgers)
		mu.Lock()
		defer mu.Unlock()
		n = seen
		return fs, ledgers, kinds, err
	}
	_, _, kinds, err := ops(n, n)
	if err != nil || kinds["create"]+kinds["reuse"] < 5 || kinds["sync"] < 15 {
		t.Fatalf("operations on log files: %v, %v", kinds, err)
	}
	total := n
	step := int64(1)
	if invariants.Enabled { // the race detector
		step = 5
	}
	for k := int64(0); k < total; k += step {
		for _, last := range []int64{k + 1, 1 << 30} {
			fs, ledgers, _, err := ops(k+1, last)
			if n > k && !errors.Is(err, errDisk) {
				t.Fatalf("failure %d to %d of %d: %v", k+1, last, total, err)
			}
			fs.OnWrite(nil)
			for name, fs := range map[string]*FS{"power cut": fs.Crash(0, 1), "lucky power cut": fs.Crash(100, 1), "end of the process": fs} {
				s, err := Open(dir, &Options{FS: fs})
				if err != nil {
					t.Fatalf("failure %d to %d, %s: %v", k+1, last, name, err)
				}
				wantLedgers(t, s, fmt.Sprintf("failure %d to %d, %s", k+1, last, name), acknowledged(ledgers))
				s.Abandon()
			}
		}
	}
	t.Logf("1 of %d of %d operations on log files failed: %v", step, total, kinds)
}

// TestFlushOfDeletionsThatCannotReplaceTheLogFailsTheStore fails the next log file when no record waits for it.
func TestFlushOfDeletionsThatCannotReplaceTheLogFailsTheStore(t *testing.T) {
	held(t, Options{MemTable: 64 << 10}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		fs.OnWrite(func(op, path string, _ int64) error {
			if strings.HasSuffix(path, ".log") && (op == "create" || op == "reuse") {
				return errDisk
			}
			return nil
		})
		o := s.live("c", "a")
		for i := range 64 {
			if err := o.Delete(SpaceKV, fmt.Append(nil, i), false); err != nil {
				t.Fatal(err)
			}
		}
		o.commit(t)
		synctest.Wait()
		if !errors.Is(s.Err(), errDisk) {
			t.Errorf("Err: %v", s.Err())
		}
	})
}

// badFile fails every operation.
type badFile struct{ vfs.File }

func (badFile) Write([]byte) (int, error)          { return 0, errDisk }
func (badFile) WriteAt([]byte, int64) (int, error) { return 0, errDisk }
func (badFile) Sync() error                        { return errDisk }
func (badFile) SyncData() error                    { return errDisk }
func (badFile) SyncTo(int64) (bool, error)         { return false, errDisk }
func (badFile) Close() error                       { return errDisk }
func (badFile) Stat() (vfs.FileInfo, error)        { return nil, errDisk }

func TestEngineSeesNoFailureOfItsLog(t *testing.T) {
	for name, op := range map[string]func(f vfs.File) error{
		"write":     func(f vfs.File) error { _, err := f.Write(nil); return err },
		"write at":  func(f vfs.File) error { _, err := f.WriteAt(nil, 0); return err },
		"sync":      func(f vfs.File) error { return f.Sync() },
		"sync data": func(f vfs.File) error { return f.SyncData() },
		"sync to":   func(f vfs.File) error { _, err := f.SyncTo(1); return err },
		"close":     func(f vfs.File) error { return f.Close() },
		"stat":      func(f vfs.File) error { _, err := f.Stat(); return err },
	} {
		b := new(background)
		b.init(nil)
		for _, k := range []fileKind{otherFile, tableFile} {
			if err := op(&engineFile{badFile{}, b, k}); err != errDisk || b.sealed.Load() {
				t.Errorf("%s of another file: %v", name, err)
			}
		}
		log := &engineFile{badFile{}, b, logFile}
		if err := op(log); err != errDisk || b.sealed.Load() {
			t.Errorf("%s of the log during Open: %v", name, err)
		}
		if err := b.opened(); err != nil {
			t.Error(err)
		}
		if err := op(log); err != nil || !errors.Is(b.failure(), errDisk) {
			t.Errorf("%s of the log: %v, and the failure is %v", name, err, b.failure())
		}
	}
}

// badFS fails every operation that opens a file to be written.
type badFS struct{ vfs.FS }

func (badFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errDisk }
func (badFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errDisk
}

func TestEngineFSAfterFailureOfTheLog(t *testing.T) {
	b := new(background)
	b.init(nil)
	_ = b.opened()
	mem := vfs.NewMem()
	v, bad := &engineFS{mem, ".", b}, &engineFS{badFS{mem}, ".", b}
	_, err := v.Create("backup/1.log", "")
	if err == nil || b.sealed.Load() {
		t.Errorf("a log in another folder: %v, sealed %t", err, b.sealed.Load())
	}
	if err := (&engineFile{badFile{}, b, v.kindOf("backup/1.log")}).Sync(); err != errDisk || b.sealed.Load() {
		t.Errorf("syncing a log in another folder: %v, sealed %t", err, b.sealed.Load())
	}
	if f, err := bad.ReuseForWrite("1.log", "2.log", ""); err != nil || f != (discarded{}) {
		t.Errorf("a log file that cannot be used again: %v, %v", f, err)
	}
	if !errors.Is(b.failure(), errDisk) {
		t.Fatalf("the failure is %v", b.failure())
	}
	if info, err := (discarded{}).Stat(); err != nil || info.Size() != 0 {
		t.Errorf("Stat of a discarded file: %v, %v", info, err)
	}
	for _, name := range []string{"MANIFEST-1", "3.log"} {
		if f, err := v.Create(name, ""); err != nil || f != (discarded{}) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	if err := v.Remove("1.log"); err != nil {
		t.Errorf("a removal: %v", err)
	}
	table, err := v.Create("1.sst", flushCategory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Write([]byte("rows")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(table.Sync(), table.Close()); err != nil {
		t.Error(err)
	}
	if info, err := mem.Stat("1.sst"); err != nil || info.Size() != 4 {
		t.Errorf("a table is not written: %v", err)
	}
	if f, err := bad.Create("2.sst", flushCategory); err != nil || f != (discarded{}) {
		t.Errorf("a table that cannot be created: %v, %v", f, err)
	}
	if n, err := (&engineFile{badFile{}, b, tableFile}).Write([]byte("rows")); n != 4 || err != nil {
		t.Errorf("a table that cannot be written: %d, %v", n, err)
	}
}

// TestLogFailureDuringWriteStallFailsTheStore fails the log while a large batch, which is written to the log first, waits
// for a flush.
func TestLogFailureDuringWriteStallFailsTheStore(t *testing.T) {
	held(t, Options{MemTable: 64 << 10}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		flush := make(chan struct{})
		var failing atomic.Bool
		fs.OnWrite(func(op, path string, _ int64) error {
			if op == "create" && strings.HasSuffix(path, ".sst") {
				<-flush
			}
			if failing.Load() && strings.HasSuffix(path, ".log") && op == "write" {
				return errDisk
			}
			return nil
		})
		o := s.live("c", "a")
		big := strings.Repeat("x", 40<<10)
		for i := range 2 {
			o.put(t, fmt.Sprint(i), big)
			o.commit(t)
		}
		failing.Store(true)
		o.put(t, "stalled", big)
		done := newReleased()
		o.Sync(done)
		o.commitBatch(t)
		synctest.Wait()
		if !errors.Is(s.background.failure(), errDisk) || s.Err() != nil {
			t.Fatalf("the record does not wait for the flush: %v, Err: %v", s.background.failure(), s.Err())
		}
		close(flush)
		if err := <-done; !errors.Is(err, errDisk) {
			t.Errorf("the record: %v", err)
		}
		if err := s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("Close: %v", err)
		}
		fs.OnWrite(nil)
		for name, fs := range map[string]*FS{"power cut": fs.Crash(0, 1), "end of the process": fs} {
			s := open(t, fs, Options{})
			for i := range 2 {
				s.live("c", "a").want(t, fmt.Sprint(i), big)
			}
			if t.Failed() {
				t.Log(name)
			}
		}
	})
}

// TestBackupThatCannotCopyLogsLeavesTheStore fails the copies of logs in the folder of a backup.
func TestBackupThatCannotCopyLogsLeavesTheStore(t *testing.T) {
	for _, failing := range []string{"create", "write", "sync"} {
		held(t, Options{}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
			o := s.live("c", "a")
			o.put(t, "n", "1")
			o.commit(t)
			fs.OnWrite(func(op, path string, _ int64) error {
				if op == failing && strings.HasPrefix(path, "backup") && strings.HasSuffix(path, ".log") {
					return errDisk
				}
				return nil
			})
			if err := s.Backup(t.Context(), "backup"); !errors.Is(err, errDisk) {
				t.Errorf("%s: Backup: %v", failing, err)
			}
			o.put(t, "n", "2")
			o.commit(t)
			if err := s.Close(); err != nil {
				t.Errorf("%s: Close: %v", failing, err)
			}
		})
	}
}

func TestOpenReportsFailureOfTheLogOnce(t *testing.T) {
	fs := NewMemFS()
	fs.FailSyncs(errDisk)
	_, err := Open(dir, &Options{FS: fs})
	if !errors.Is(err, errDisk) || strings.Count(err.Error(), errDisk.Error()) != 1 {
		t.Errorf("Open: %v", err)
	}
}
