package runtime

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/objectstore"
)

// RestoreObject replaces the state of an object by that of an earlier moment: see objectstore.Batch.Replace. It first waits
// until the archive has the moment and reads the state, while the object runs. Then it ends the incarnation, if there is one,
// and replaces the state when all earlier commits are durable. Events that have not started wait, and run in the next incarnation.
// It returns when the replacement is durable. The bookmark undo names the record before it.
//
// If ctx ends before the incarnation, the object is left as it was.
//
// Errors: the errors of objectstore.Store.ArchivedState, before the incarnation has ended; ErrHalfImported, ErrNoClass, ErrElsewhere,
// ErrClosed; objectstore.ErrNoSpace and ErrFenced, if the replacement could not be written.
func (h *Host) RestoreObject(ctx context.Context, id ID, to objectstore.RestorePoint) (undo objectstore.Bookmark, err error) {
	return h.restoreObject(ctx, id, to, nil)
}

// RestoreTo is Host.RestoreObject of the object itself. RestoreTo gives up the turn until the archive has been read. Other events
// may run until then, and the replacement discards their writes, too. If RestoreTo succeeds, the incarnation has ended, and the error is the reason.
//
// Errors: the errors of RestoreObject and of Await. After an error other than ErrFenced the object is unchanged.
func (s *State) RestoreTo(ctx context.Context, to objectstore.RestorePoint) error {
	if stateOf(ctx) != s {
		return ErrNoTurn
	}
	inc := s.incarnation()
	return Await(ctx, func(ctx context.Context) error {
		if _, err := s.Host().restoreObject(ctx, s.ID(), to, inc); err != nil {
			return err
		}
		return inc.cause()
	})
}

// Bookmark commits the batch and, when everything that the object has committed is durable, NoWait writes included, returns the
// bookmark of the newest record. It keeps the turn, so a write of a later event is in a later record.
//
// Errors: the errors of Sync; objectstore.ErrNotShipping.
func (s *State) Bookmark(ctx context.Context) (objectstore.Bookmark, error) {
	t, err := s.access(ctx)
	if err != nil {
		return "", err
	}
	defer t.done()
	if t.tx != nil {
		return "", ErrInTransaction
	}
	if err := t.sync(); err != nil {
		return "", err
	}
	return s.Host().store.Bookmark()
}

// maxRestores bounds the restores of a host that run at a time, and so the memory of their states: of 16 MiB each.
const maxRestores = 4

// restoreObject is RestoreObject; with only, it does nothing if that incarnation has ended.
func (h *Host) restoreObject(
	ctx context.Context, id ID, to objectstore.RestorePoint, only *incarnation,
) (undo objectstore.Bookmark, err error) {
	class, err := h.classOf(id)
	if err != nil {
		return "", err
	}
	h.active.Add(1) // so that Close waits for it
	defer h.decrement(&h.active)
	reading, end := h.untilClosing(ctx)
	defer end()
	select {
	case h.restores <- struct{}{}:
		defer func() { <-h.restores }()
	case <-reading.Done():
		return "", context.Cause(reading)
	}
	state, err := h.store.ArchivedState(reading, id, to)
	if err != nil {
		return "", err
	}
	if only != nil {
		ctx = context.WithoutCancel(ctx) // it ends with the incarnation
	}
	waiting, end := h.untilClosing(ctx)
	defer end()
	for h.phase.Load() == phaseOpen {
		o, r := class.objectOf(id.Name), &replacement{state: state, done: make(chan struct{})}
		switch err := o.deferReplacement(waiting, r, only); err {
		case nil:
		case errGone:
			class.forget(o)
			continue
		default:
			return "", err
		}
		if err := r.wait(waiting); err != nil {
			return "", errkind.About(fmt.Sprintf("restoring %v", id), err)
		}
		h.log.Info("object restored to an earlier state", "object", id.String(), "record", state.Record, "undo", string(r.undo))
		return r.undo, nil
	}
	return "", ErrClosed
}

// untilClosing returns a context that also ends when the host begins to close.
func (h *Host) untilClosing(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.open, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// replacement is a replacement of an object's state that is due between two incarnations.
type replacement struct {
	state *objectstore.ArchivedState
	taken atomic.Bool   // by the runner that makes it, or by its caller when the caller gives up
	done  chan struct{} // closed when the fields below are set
	undo  objectstore.Bookmark
	err   error
}

// deferReplacement ends the incarnation, and makes the next runner replace the state before it begins another one. With only, it
// does so only if that is the incarnation. Errors: errGone, the cause of ctx or of the end of that incarnation.
func (o *object) deferReplacement(ctx context.Context, r *replacement, only *incarnation) error {
	o.mu.Lock()
	inc := o.incarnation
	var err error
	switch {
	case o.state == objectRemoved:
		err = errGone
	case only != nil && inc != only:
		err = only.cause()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		o.mu.Unlock()
		return err
	}
	o.deferredSlots = &slotEdit{replacement: r, next: o.deferredSlots}
	o.releaseLocked(o.wakeLocked())
	o.fence(inc, &Fenced{Reason: ReasonRestored}, eviction.EndFence)
	return nil
}

// wait waits until the replacement was made, or for the end of ctx if no runner has begun to make it.
func (r *replacement) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	if r.taken.CompareAndSwap(false, true) {
		r.state = nil // a runner may drop the replacement much later
		return context.Cause(ctx)
	}
	<-r.done
	return r.err
}

// runReplacement makes a replacement. It ends the back-off of the constructor, which failed on the old state. A queued delivery
// belongs to the replaced alarm, also if a constructor has set that alarm again.
func (o *object) runReplacement(r *replacement) {
	if !r.taken.CompareAndSwap(false, true) {
		return
	}
	r.undo, r.err = o.replace(r.state)
	o.mu.Lock()
	o.backOff = nil
	if o.alarm != nil {
		o.alarm.moved = false
	}
	o.mu.Unlock()
	close(r.done)
}

// replace writes the replacement, between two incarnations, and returns the bookmark of the record before. It waits until the
// replacement is durable, or is known not to be.
func (o *object) replace(state *objectstore.ArchivedState) (undo objectstore.Bookmark, err error) {
	if o.host().store.Importing(o.id()) {
		return "", ErrHalfImported
	}
	if err := o.commitBetween(func(*objectstore.Batch) error { return nil }); err != nil {
		return "", err
	}
	if undo, err = o.host().store.Bookmark(); err != nil {
		return "", err
	}
	return undo, o.commitBetween(func(batch *objectstore.Batch) error { return batch.Replace(o.host().open, state) })
}

// commitBetween commits a batch between two incarnations, and waits until all commits of the object are durable.
func (o *object) commitBetween(write func(*objectstore.Batch) error) error {
	epoch := o.host().store.NewEpoch()
	o.rng.Begin(epoch)
	defer o.rng.Fence()
	batch, durable := o.rng.NewBatch(epoch), make(durableResult, 1)
	err := write(batch)
	if err == nil {
		batch.Sync(durable)
		err = o.rng.Commit(batch)
	}
	if err != nil {
		batch.Discard()
		return err
	}
	return <-durable
}
