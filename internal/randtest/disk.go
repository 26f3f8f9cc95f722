package randtest

import (
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Disk is the file system of the processes of a run. Its methods may be called from any goroutine.
type Disk struct {
	mu sync.Mutex
	fs *objectstore.FS // of the present process
}

// Watch makes d find the file system of each process that opens a host with the options. opened is called then, with no
// locks held.
func (d *Disk) Watch(o *dohost.Options, opened func()) {
	kernel.Tune(o, func(ro *runtime.Options) {
		d.mu.Lock()
		d.fs = ro.Store.FS
		d.mu.Unlock()
		opened()
	})
}

// SetFull sets whether the disk of the present process is full.
func (d *Disk) SetFull(full bool) {
	free := uint64(1 << 60)
	if full {
		free = 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs.SetFree(free)
}

// AfterPowerCut sets the file system of o to a copy of the synced data of the present process, without faults.
func (d *Disk) AfterPowerCut(o *dohost.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kernel.OnFS(o, d.fs.Crash(0, 1))
}
