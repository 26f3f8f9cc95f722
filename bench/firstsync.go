package main

import (
	"sync/atomic"
	"time"
)

// syncedLog is a log that reports the ends of its syncs.
type syncedLog interface {
	begin()
	durable() time.Time
}

// firstSync is the end of the first sync of a log since the last call of begin.
type firstSync struct {
	synced atomic.Int64 // in ns after programBegan; zero: none has ended
}

// programBegan has the monotonic clock, which the times of syncs need.
var programBegan = time.Now()

// begin begins to wait for the next sync.
func (f *firstSync) begin() { f.synced.Store(0) }

// ended records the end of a sync.
func (f *firstSync) ended() { f.synced.CompareAndSwap(0, int64(time.Since(programBegan))) }

// durable returns the end of the first sync since begin, or the zero time.
func (f *firstSync) durable() (at time.Time) {
	if ns := f.synced.Load(); ns != 0 {
		at = programBegan.Add(time.Duration(ns))
	}
	return at
}
