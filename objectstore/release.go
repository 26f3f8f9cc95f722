package objectstore

import (
	"fmt"
	"runtime/debug"
	"slices"
)

// Output is something that leaves an object. The store releases it exactly once, on any goroutine: for instance on the
// committer's, or on the goroutine that commits or fences. Release must do constant work, and must neither block nor run code
// of the store's users. An output that panics nevertheless is logged, and the outputs after it are released.
type Output interface {
	// Release releases the output. With an error the output must not leave.
	Release(err error)
}

// AsyncOutput is an Output that runs code of the store's users: that code may block,
// panic or end its goroutine. The outputs of the object that were emitted later wait for
// it; the committer and other objects do not.
type AsyncOutput interface {
	Output // Release is called with an error only
	// ReleaseAsync releases the output, and returns without waiting for that. It calls done, once and on another
	// goroutine, when the outputs after it may leave: done releases them.
	ReleaseAsync(done func())
}

// maxReleaseLoop bounds the passes of a goroutine over outputs that were emitted during its release. Then the committer continues,
// so that no caller releases the outputs of others without end.
const maxReleaseLoop = 64

// releaseLoop releases the outputs that may leave. The caller has set r.releasing and holds no lock.
func (r *Range) releaseLoop() {
	for i := 0; r.releasePass(r.takeReleasable()); i++ {
		if i >= maxReleaseLoop && r.store.queue.continueRelease(r) {
			return
		}
	}
}

// takeReleasable takes the outputs that may leave now.
func (r *Range) takeReleasable() []emission {
	r.mu.Lock()
	defer r.mu.Unlock()
	outs := r.out
	r.out = nil
	return outs
}

// releasePass releases outs, which no other goroutine has, in order. It returns true if other
// outputs may leave by now: the caller is still the one to release them. It returns false
// as well if an AsyncOutput has taken over. Only the goroutine that set r.releasing, or was
// asked to continue for that one, may call it.
func (r *Range) releasePass(outs []emission) (more bool) {
	if len(outs) > 0 {
		var err error
		if !r.store.log.Valid() {
			err = ErrFenced
			r.store.leaseInvalid()
		}
		if !r.release(outs, err) {
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releasing = len(r.out) > 0
	return r.releasing
}

// resume releases outs, and then the outputs that may leave after them.
func (r *Range) resume(outs []emission) {
	if r.releasePass(outs) {
		r.releaseLoop()
	}
}

// release releases outs in order. It returns false if an AsyncOutput is among them that
// may leave: the outputs after it are put back, and it releases them.
func (r *Range) release(outs []emission, err error) (all bool) {
	i := 0
	defer func() {
		if i < len(outs) {
			all = r.releaseAfter(outs[i:], err, recover())
		}
		clear(outs)
	}()
	for ; i < len(outs); i++ {
		async, ok := outs[i].out.(AsyncOutput)
		if !ok || err != nil {
			outs[i].out.Release(err)
			r.store.budget.give(outs[i].size)
			continue
		}
		size := outs[i].size
		r.mu.Lock()
		r.out = append(slices.Clone(outs[i+1:]), r.out...)
		r.mu.Unlock()
		i = len(outs)
		async.ReleaseAsync(func() {
			r.store.budget.give(size)
			r.resume(r.takeReleasable())
		})
		return false
	}
	return true
}

// releaseAfter continues after the first of outs, which has panicked with v or, if v is
// nil, is about to end its goroutine.
func (r *Range) releaseAfter(outs []emission, err error, v any) (all bool) {
	r.store.opts.Logger.Error("an output panicked", "object", r.id.String(), "output", fmt.Sprintf("%T", outs[0].out), "panic", v,
		"stack", string(debug.Stack()))
	r.store.budget.give(outs[0].size)
	switch {
	case v != nil:
		return r.release(outs[1:], err)
	case err != nil:
		r.release(outs[1:], err)
	default:
		go r.resume(slices.Clone(outs[1:]))
	}
	return false
}

// releaseDropped releases the outputs of a layer that was dropped. The caller has incremented r.dropping.
func (r *Range) releaseDropped(outs []emission, err error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.dropping--
	}()
	r.release(outs, err)
}
