package objectstore

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failingSyncs is a file system with files that cannot be synced while fail is set.
type failingSyncs struct {
	vfs.FS
	fail atomic.Bool
}

func (f *failingSyncs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return unsyncedFile{file, f}, err
}

type unsyncedFile struct {
	vfs.File
	of *failingSyncs
}

func (f unsyncedFile) SyncData() error {
	if f.of.fail.Load() {
		return syscall.EIO
	}
	return f.File.SyncData()
}

// TestOnSyncedFollowsEachSync holds a sync of the log, and then lets one fail: only a sync that has ended counts.
func TestOnSyncedFollowsEachSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewMemFS()
		syncs := &failingSyncs{FS: disk.base}
		disk.base = syncs
		synced := int64(0)
		disk.OnSynced(func() { synced++ })
		s := open(t, disk, Options{})
		r := s.live("c", "n")
		r.put(t, "k", "v")
		r.commitBatch(t)
		synctest.Wait()
		if synced == 0 || synced != disk.Syncs() {
			t.Errorf("%d calls after %d syncs", synced, disk.Syncs())
		}
		before, release := synced, disk.HoldSyncs()
		r.put(t, "k", "w")
		r.commitBatch(t)
		synctest.Wait()
		if synced != before {
			t.Error("a call before the end of a sync")
		}
		release()
		synctest.Wait()
		if synced != before+1 {
			t.Errorf("%d calls after a sync", synced-before)
		}
		syncs.fail.Store(true)
		r.put(t, "k", "x")
		r.commitBatch(t)
		synctest.Wait()
		if synced != before+1 {
			t.Error("a call after a sync that failed")
		}
	})
}
