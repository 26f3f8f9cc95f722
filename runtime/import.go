package runtime

import (
	"context"
	"fmt"
	"io"

	"github.com/dohost/dohost/objectstore"
)

// Import creates the object id from an export. Events for the object wait until it is done.
//
// Errors: the errors of objectstore.Store.Import; objectstore.ErrExists also for an object that
// is in use; ErrNoClass, ErrElsewhere, ErrClosed.
func (h *Host) Import(ctx context.Context, id ID, r io.Reader) error {
	class, err := h.classOf(id)
	if err != nil {
		return err
	}
	if err := id.Validate(); err != nil {
		return err
	}
	h.active.Add(1) // so that Close waits for it
	defer h.decrement(&h.active)
	for h.phase.Load() == phaseOpen {
		o := class.objectOf(id.Name)
		claimed, err := o.claim()
		switch {
		case claimed:
			defer o.endClaim()
			return h.store.Import(ctx, id, r)
		case err != errGone:
			return err
		}
		class.forget(o)
	}
	return ErrClosed
}

// claim ends the incarnation of an object that is at rest, and keeps the next one from
// beginning until endClaim.
func (o *object) claim() (bool, error) {
	o.mu.Lock()
	inc := o.incarnation
	o.mu.Unlock()
	if inc != nil {
		o.host().evictIdle(o, inc, ReasonEvicted)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.state == objectRemoved:
		return false, errGone
	case o.state != objectCold || !o.isIdleLocked():
		return false, fmt.Errorf("%w: %v is in use", objectstore.ErrExists, o.id())
	}
	o.rng = nil // it caches the last committed writes, and an import bypasses it
	o.transitionLocked(objectImporting)
	return true, nil
}
