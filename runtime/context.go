package runtime

import (
	"context"
	"time"
)

// turnKey is the context key under which a turn, or an awayCtx, is found.
type turnKey struct{}

// awayCtx is the context of an Await's fn: it has no turn, and remembers whose it was.
type awayCtx struct {
	context.Context
	t *turn
}

// Value finds the awayCtx itself.
func (c *awayCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// heldCtx is the context of an Enter's fn.
type heldCtx struct {
	context.Context
	t *turn
}

// Value finds the turn of the Enter.
func (c *heldCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c.t
	}
	return c.Context.Value(key)
}

// eventCtx is the context of a handler: it ends with the life, never with the
// caller, and carries the turn.
type eventCtx event

// Deadline reports none: an event's context has no time of its own.
func (c *eventCtx) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the life ends.
func (c *eventCtx) Done() <-chan struct{} { return c.life.context().Done() }

// Err is nil until the life has ended.
func (c *eventCtx) Err() error {
	if !c.life.dead.Load() {
		return nil
	}
	return c.life.context().Err()
}

// Value finds the turn, and the life's context for context.Cause.
func (c *eventCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return &c.turn
	}
	return c.life.context().Value(key)
}

// turnOf returns the turn that ctx carries, or nil.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// eventOf returns the event on whose behalf ctx runs, with or without the turn.
func eventOf(ctx context.Context) *event {
	switch v := ctx.Value(turnKey{}).(type) {
	case *turn:
		return v.ev
	case *awayCtx:
		return v.t.ev
	}
	return nil
}

// endedOf is why the incarnation that ctx belongs to has ended; nil if it has not,
// or there is none.
func endedOf(ctx context.Context) error {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	return ev.life.cause()
}
