package randprog

import (
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/randtest"
)

// disk is the disk of a run. It may be full: then the store refuses writes, and commits those that it has accepted.
type disk struct {
	randtest.Disk
	full  bool
	since time.Time // when it became so, or the present process has begun
}

// The store measures the disk in these intervals.
const (
	measureFree = time.Second
	measureFull = 100 * time.Millisecond
)

// watch makes the Observer find the disk of each process.
func (w *Observer) watch(o *dohost.Options) {
	w.disk.Watch(o, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fillLocked(w.disk.full)
	})
}

func (w *Observer) fillLocked(full bool) {
	w.disk.full, w.disk.since = full, time.Now()
	w.disk.SetFull(full)
}

// FillDisk fills the disk, or frees it.
func (w *Observer) FillDisk(full bool) error {
	w.mu.Lock()
	if full != w.disk.full {
		w.fillLocked(full)
	}
	w.mu.Unlock()
	return w.Err()
}

// puts are the writes that need space.
var puts = map[Op]bool{
	Put: true, PutNoWait: true, PutMany: true, PutTooLong: true, Add: true, Insert: true, PutRow: true, UpdateRow: true, UpdateIf: true,
}

// mayRefuse reports whether the store may refuse a write for want of space, and mustRefuse whether it has to.
func (d *disk) mayRefuse() bool  { return d.full || time.Since(d.since) < measureFull }
func (d *disk) mustRefuse() bool { return d.full && time.Since(d.since) >= measureFree }
