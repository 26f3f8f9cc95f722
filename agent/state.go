package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/dohost/dohost"
)

// ErrReadonly is the error of a state change by a client with read-only rights. It is a
// [dohost.ErrReadOnly], with the text of the Agents SDK.
var ErrReadonly error = readonlyError{}

type readonlyError struct{}

func (readonlyError) Error() string        { return "Connection is readonly" }
func (readonlyError) Is(target error) bool { return target == dohost.ErrReadOnly }

// mayOnlyRead reports whether the client for which an event runs may change nothing.
func mayOnlyRead(ctx context.Context) bool {
	if by := Current(ctx); by != nil && by.Readonly() {
		return true
	}
	a, ok := dohost.AccessFrom(ctx)
	return ok && a.Rights != dohost.ReadWrite
}

// errRejected is what a client is told of a change that was refused; why is for the log.
var errRejected = errors.New("State update rejected")

// stateRow is an agent's state, as the one row of its collection.
type stateRow struct{ JSON []byte }

var states = dohost.Collection[stateRow]{
	Name: "dohost.state",
	Key:  func(stateRow) string { return "state" },
}

// Initial is the state of an agent that has none yet. It is written when it is first read.
func Initial[O, S any](s S) Entry[O] {
	return func(c *class) {
		raw, err := marshal(s)
		if err != nil {
			c.mistake("Initial: %w", err)
		}
		c.once("Initial", false, c.initial != nil)
		c.ofState("Initial", reflect.TypeFor[S]())
		c.initial = raw
	}
}

// Validate refuses changes of the state: one for which it returns an error is not made. It
// must not change anything itself. from is the connection whose client has sent the change, or
// nil if it is the agent's own. A client whose change is refused is told so, but not why.
func Validate[O, S any](m func(o *O, ctx context.Context, next S, from *Conn) error) Entry[O] {
	return func(c *class) {
		c.once("Validate", m == nil, c.validate != nil)
		c.ofState("Validate", reflect.TypeFor[S]())
		c.validate = stateHook(m)
	}
}

// OnStateChanged is told of each change of the state, as an event of its own, once the change
// is durable. By then the state may be another. from is as [Validate] has it. What it returns
// goes to the log.
func OnStateChanged[O, S any](m func(o *O, ctx context.Context, s S, from *Conn) error) Entry[O] {
	return func(c *class) {
		c.once("OnStateChanged", m == nil, c.changed != nil)
		c.ofState("OnStateChanged", reflect.TypeFor[S]())
		c.changed = stateHook(m)
	}
}

func stateHook[O, S any](m func(*O, context.Context, S, *Conn) error) func(any, context.Context, json.RawMessage, *Conn) error {
	return func(self any, ctx context.Context, raw json.RawMessage, from *Conn) error {
		var s S
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		return m(self.(*O), ctx, s, from)
	}
}

func (c *class) ofState(entry string, t reflect.Type) {
	if t != c.state {
		c.mistake("%s is for a state of type %v, the agent's is %v", entry, t, c.state)
	}
}

// State returns the agent's state: the zero S if it has none.
//
// Errors: one for a state that is no S any more, which is kept as it is.
func (a *Agent[S]) State(ctx context.Context) (s S, err error) {
	raw, err := a.rawState(ctx)
	if err != nil || raw == nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("agent: the state of %s is no %T: %w", a.ID(), s, err)
	}
	return s, nil
}

// SetState replaces the agent's state, shows it to all clients, and tells [OnStateChanged].
// The client whose call this is sees it too, ahead of the answer: it has not made the change
// itself.
//
// Errors: [ErrReadonly] in an event of a client that may only read, over a connection or over HTTP;
// that of [Validate]; a [*dohost.LimitError] for a state of more than nearly 2 MiB.
func (a *Agent[S]) SetState(ctx context.Context, s S) error {
	if mayOnlyRead(ctx) {
		return ErrReadonly
	}
	raw, err := marshal(s)
	if err != nil {
		return err
	}
	return a.setState(ctx, raw, nil)
}

// UpdateState lets change change the state, and sets it. Members that a client has sent, and S does
// not know, are gone then.
//
// Errors: change's, and those of State and SetState.
func (a *Agent[S]) UpdateState(ctx context.Context, change func(*S) error) error {
	s, err := a.State(ctx)
	if err != nil {
		return err
	}
	if err := change(&s); err != nil {
		return err
	}
	return a.SetState(ctx, s)
}

// rawState is the state as JSON, or nil.
func (c *core) rawState(ctx context.Context) (json.RawMessage, error) {
	row, ok, err := states.Get(ctx, c.store(), "state")
	if err != nil || ok {
		return row.Value.JSON, err
	}
	if c.class.initial == nil || mayOnlyRead(ctx) {
		return c.class.initial, nil
	}
	return c.class.initial, states.Put(ctx, c.store(), stateRow{c.class.initial})
}

// setState makes a change that a connection's client has sent, or that is the agent's own.
func (c *core) setState(ctx context.Context, raw json.RawMessage, from *Conn) error {
	if from != nil && from.Readonly() {
		return ErrReadonly
	}
	if c.class.validate != nil {
		if err := c.class.validate(c.self, ctx, raw, from); err != nil {
			return err
		}
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := states.Put(ctx, c.store(), stateRow{raw}); err != nil {
			return err
		}
		frame, err := marshal(stateFrame{frameState, raw})
		if err != nil {
			return err
		}
		others := func(to *Conn) bool { return to.Protocol() && !to.Is(from) }
		if err := c.broadcast(ctx, dohost.Frame{Text: true, Data: frame}, others); err != nil {
			return err
		}
		if c.class.changed == nil {
			return nil
		}
		return c.obj.Go(ctx, "state changed", func(ctx context.Context) error {
			if err := c.class.changed(c.self, ctx, raw, from); err != nil {
				c.failed(ctx, "state changed", err)
			}
			return nil
		})
	})
}

// clientState makes a change that a client has sent, or tells it that it is not made.
func (c *core) clientState(ctx context.Context, conn *Conn, raw json.RawMessage) error {
	err := c.fits(raw)
	if err == nil {
		err = c.setState(ctx, raw, conn)
	}
	if err == nil {
		return nil
	}
	told := errRejected
	if errors.Is(err, ErrReadonly) {
		told = ErrReadonly
	}
	if gone := conn.send(ctx, stateError{frameStateError, told.Error()}); gone != nil {
		return errors.Join(err, gone)
	}
	return err
}

// fits says whether a state that a client has sent can be the agent's.
func (c *core) fits(raw json.RawMessage) error {
	return json.Unmarshal(raw, reflect.New(c.class.state).Interface())
}
