package runtime

import (
	"context"
	"time"

	"github.com/dohost/dohost/internal/seal"
)

// turnKey is the context key of a turn, or of a releasedCtx.
type turnKey struct{}

// releasedCtx is the context of an Await's fn: it has no turn, but refers to the released one.
type releasedCtx struct {
	context.Context
	t *turn
}

// Value returns the releasedCtx itself for turnKey.
func (c *releasedCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// heldCtx is the context of a HoldTurn's fn.
type heldCtx struct {
	context.Context
	t *turn
}

// Value returns the turn of the HoldTurn for turnKey.
func (c *heldCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c.t
	}
	return c.Context.Value(key)
}

// eventCtx is the context of a handler. It has the turn. It ends with the incarnation,
// never with the caller.
type eventCtx event

// Deadline reports none: an event's context has no deadline.
func (c *eventCtx) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the incarnation ends.
func (c *eventCtx) Done() <-chan struct{} { return c.incarnation.context().Done() }

// Err is nil until the incarnation has ended.
func (c *eventCtx) Err() error {
	if !c.incarnation.dead.Load() {
		return nil
	}
	return c.incarnation.context().Err()
}

// Value returns the turn, and the values of the incarnation's context for context.Cause. As long as the incarnation
// runs and nothing waits for its end, it has no context of its own, and so no values: looking for a value does not
// make one, which would stay in memory for as long as the object is idle.
func (c *eventCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return &c.turn
	}
	if c.incarnation.ctx.Load() == nil && !c.incarnation.dead.Load() {
		return nil
	}
	return c.incarnation.context().Value(key)
}

// turnOf returns the turn that ctx carries, or nil.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// eventOf returns the event that ctx belongs to, with or without the turn.
func eventOf(ctx context.Context) *event {
	switch v := ctx.Value(turnKey{}).(type) {
	case *turn:
		return v.ev
	case *releasedCtx:
		return v.t.ev
	}
	return nil
}

// endedOf returns the reason why the incarnation of ctx has ended; nil if it has not, or if
// ctx belongs to none.
func endedOf(ctx context.Context) error {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	return ev.incarnation.cause()
}

// StateOf returns the State of the incarnation that ctx belongs to, or nil. The State leads to the whole host, so only
// code of this module can call StateOf: it panics if the Key is not of seal.New.
func StateOf(ctx context.Context, k seal.Key) *State {
	k.Check()
	return stateOf(ctx)
}

func stateOf(ctx context.Context) *State {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	return (*State)(ev.incarnation)
}
