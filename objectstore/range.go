package objectstore

import "context"

// Range is one object's key range and its writes that are not durable yet. The
// caller keeps at most one Range per ID. All methods may be called from any
// goroutine.
type Range struct{}

// Range returns the range of an object. It does no I/O, and the store keeps no
// reference to a Range that is clean.
func (s *Store) Range(id ID) *Range { return nil }

// Begin makes e the owner: from now on hand-overs of every other epoch are refused.
func (r *Range) Begin(e Epoch) {}

// Fence leaves the range without an owner. What was handed over stays history,
// and its outputs leave when they may.
func (r *Range) Fence() {}

// FenceDropping is Fence as a power cut would do it: what was handed over and is
// in no record yet is dropped, whole, and its outputs are released with
// ErrFenced by the caller's goroutine. A record in flight lands.
func (r *Range) FenceDropping() {}

// HandOver makes the segment history, unless its epoch is not the owner
// (ErrFenced) or the store has failed (an error that is both ErrFenced and the
// failure). On success the segment is empty again, ready for use, and each of
// its outputs will be released exactly once, in order; outputs that wait for
// nothing are released before HandOver returns. On failure the segment is
// untouched: the caller discards it and owns its outputs.
func (r *Range) HandOver(s *Segment) error { return nil }

// Clean says that nothing of the range is undurable and nothing unreleased.
func (r *Range) Clean() bool { return false }

// Throttle waits while the range, or the store, holds more undurable bytes than
// Options allow. It returns ErrFenced when the store fails, else the ctx's error.
func (r *Range) Throttle(ctx context.Context) error { return nil }

// OnClean sets f, which the committer calls without a lock each time the range
// becomes clean. By then it may be dirty again: f asks Clean. Set it before use,
// once.
func (r *Range) OnClean(f func()) {}

// Output is something that leaves an object. It is released exactly once, by
// the committer or by the goroutine that hands over. With an error it must not
// leave. Release is constant work, never blocks and runs no user code.
type Output interface{ Release(err error) }
