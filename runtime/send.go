package runtime

import (
	"context"
	"fmt"

	"github.com/dohost/dohost/eviction"
)

// Sent is a call; its sender collects the answer later.
type Sent struct {
	ev *event
	id ID
}

// Send is Do without waiting for the answer. The context must not hold a turn.
func (h *Host) Send(ctx context.Context, id ID, c Call) (*Sent, error) {
	err := endedOf(ctx)
	if err == nil && turnOf(ctx) != nil {
		err = fmt.Errorf("%w: Send needs a context that does not hold a turn", ErrTurnBusy)
	}
	if err != nil {
		return nil, refusal(id, c.Op, err)
	}
	ev := h.newCall(ctx, c)
	h.callAt(ctx, id, c.Op, eviction.PlaceSend)
	if err := h.send(id, ev); err != nil {
		return nil, refusal(id, c.Op, err)
	}
	return &Sent{ev, id}, nil
}

// Done yields the answer, once.
func (s *Sent) Done() <-chan error { return s.ev.done }

// Abandon takes the call back if it has not started, and drops its answer if it has. ctx
// has ended. The error reports whether the call ran.
func (s *Sent) Abandon(ctx context.Context) error { return s.ev.abandon(ctx, s.id) }
