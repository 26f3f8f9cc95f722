package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/dohost/dohost"
)

// errRejected is the error that a client gets for a refused change; the log has the reason.
var errRejected = errors.New("State update rejected")

// stateRow is an agent's state, as the one row of its collection.
type stateRow struct{ JSON []byte }

var states = dohost.Collection[stateRow]{
	Name: "dohost.state",
	Key:  func(stateRow) string { return "state" },
}

func stateHook[O, S any](m func(*O, context.Context, S, *Conn) error) hook2[json.RawMessage, *Conn] {
	if m == nil {
		return nil
	}
	return func(self any, ctx context.Context, raw json.RawMessage, from *Conn) error {
		var s S
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		return m(self.(*O), ctx, s, from)
	}
}

// State returns the agent's state, or the zero S if it has none.
//
// Errors: one for a stored state that does not decode into S; it is not changed.
func (a *Agent[S]) State(ctx context.Context) (s S, err error) {
	raw, err := a.core.clients.rawState(ctx)
	if err != nil || raw == nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("agent: the state of %s does not decode into %T: %w", a.ID(), s, err)
	}
	return s, nil
}

// SetState replaces the agent's state, broadcasts it to all clients, and starts OnStateChanged. A client that
// called the method gets the new state too, before the answer to its call: the client did not make the change
// itself.
//
// Errors: the error of [CheckWrite] in an event of a client that may only read;
// the error of Validate; a [*dohost.LimitError] for a state of more than nearly 2 MiB.
func (a *Agent[S]) SetState(ctx context.Context, s S) error {
	if err := CheckWrite(ctx); err != nil {
		return err
	}
	raw, err := marshal(s)
	if err != nil {
		return err
	}
	return a.core.clients.setState(ctx, raw, nil)
}

// UpdateState calls change with the state, and sets the result. Members that a client has sent and S does not
// have are lost.
//
// Errors: change's, and the errors of State and SetState.
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

// rawState returns the state as JSON, or nil.
func (cs *clients) rawState(ctx context.Context) (json.RawMessage, error) {
	row, ok, err := states.Get(ctx, cs.store(), "state")
	if err != nil || ok {
		return row.Value.JSON, err
	}
	if cs.class.initial == nil || CheckWrite(ctx) != nil {
		return cs.class.initial, nil
	}
	return cs.class.initial, states.Put(ctx, cs.store(), stateRow{cs.class.initial})
}

// setState makes a change that a client sent on a connection, or one by the agent if from is nil.
func (cs *clients) setState(ctx context.Context, raw json.RawMessage, from *Conn) error {
	if from != nil && from.Readonly() {
		return errReadonly
	}
	if cs.class.validate != nil {
		if err := cs.class.validate(cs.self, ctx, raw, from); err != nil {
			return err
		}
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := states.Put(ctx, cs.store(), stateRow{raw}); err != nil {
			return err
		}
		frame, err := marshal(stateFrame{frameState, raw})
		if err != nil {
			return err
		}
		others := func(to *Conn) bool { return to.Protocol() && !to.Is(from) }
		if err := cs.broadcast(ctx, dohost.Frame{Text: true, Data: frame}, others); err != nil {
			return err
		}
		if cs.class.changed == nil {
			return nil
		}
		return cs.obj.Go(ctx, "state changed", func(ctx context.Context) error {
			if err := cs.class.changed(cs.self, ctx, raw, from); err != nil {
				cs.reportError(ctx, "state changed", err)
			}
			return nil
		})
	})
}

// clientState makes a change that a client has sent, or sends the client an error.
func (cs *clients) clientState(ctx context.Context, conn *Conn, raw json.RawMessage) error {
	err := json.Unmarshal(raw, reflect.New(cs.class.state).Interface())
	if err == nil {
		err = cs.setState(ctx, raw, conn)
	}
	if err == nil {
		return nil
	}
	text := errRejected.Error()
	if errors.Is(err, errReadonly) {
		text = readonlyText
	}
	if gone := conn.send(ctx, stateError{frameStateError, text}); gone != nil {
		return errors.Join(err, gone)
	}
	return err
}
