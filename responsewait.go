package dohost

import (
	"context"
	"errors"
)

// errFlushEnded ends the wait of a FlushError after its piece was released.
var errFlushEnded = errors.New("flush ended")

// whenClosed sets onClose, which may be nil, and calls f if the queue is closed already.
func (o *responseQueue) whenClosed(f func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.onClose = f; f != nil && o.closed != nil {
		f(o.closed)
	}
}

// wait returns when little enough is unsent, or with errFlushEnded when until is closed.
func (o *responseQueue) wait(ctx context.Context, until <-chan struct{}) error {
	for {
		o.mu.Lock()
		if o.closed != nil || o.unsent <= maxUnsent {
			defer o.mu.Unlock()
			return o.closed
		}
		if o.spaceFreed == nil {
			o.spaceFreed = make(chan struct{})
		}
		freed := o.spaceFreed
		o.mu.Unlock()
		select {
		case <-freed:
		case <-until:
			return errFlushEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
