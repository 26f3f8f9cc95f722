package objectstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
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
	for k := range total {
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
				for i, l := range ledgers {
					got := (&ledger{live: s.live("ledger", fmt.Sprint(i))}).check(t)
					if acked := l.acked.Load(); int64(got) < acked {
						t.Errorf("failure %d to %d, %s: ledger %d has %d, %d was acknowledged", k+1, last, name, i, got, acked)
					}
				}
				wantConsistent(t, s)
				s.Abandon()
			}
		}
	}
	t.Logf("%d operations on log files failed: %v", total, kinds)
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

func TestEngineSeesNoFailureOfItsLog(t *testing.T) {
	for name, op := range map[string]func(f vfs.File) error{
		"write":     func(f vfs.File) error { _, err := f.Write(nil); return err },
		"write at":  func(f vfs.File) error { _, err := f.WriteAt(nil, 0); return err },
		"sync":      func(f vfs.File) error { return f.Sync() },
		"sync data": func(f vfs.File) error { return f.SyncData() },
		"sync to":   func(f vfs.File) error { _, err := f.SyncTo(1); return err },
		"close":     func(f vfs.File) error { return f.Close() },
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

func TestNewTableWaitsForTheEndOfAStoreWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(background)
		b.init(nil)
		_ = b.opened()
		v := &engineFS{vfs.NewMem(), b}
		table, err := v.Create("1.sst", flushCategory)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.check(logFile, errDisk); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Write(nil); !errors.Is(err, errDisk) {
			t.Errorf("writing a table: %v", err)
		}
		created := make(chan error, 1)
		go func() {
			_, err := v.Create("2.sst", flushCategory)
			created <- err
		}()
		synctest.Wait()
		select {
		case err := <-created:
			t.Fatalf("created before the end: %v", err)
		default:
		}
		b.close()
		if err := <-created; !errors.Is(err, errDisk) {
			t.Errorf("creating a table: %v", err)
		}
		if f, err := v.Create("MANIFEST-1", ""); err != nil || f != (discarded{}) {
			t.Errorf("another file: %v, %v", f, err)
		}
	})
}
