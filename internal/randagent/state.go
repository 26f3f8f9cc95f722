package randagent

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/randtest"
)

// state is the agent's state. Each change has another number.
type state struct{ Number, N int }

// change is a change of the state in the model.
type change struct{ N, Incarnation int }

var errInvalid = errors.New("the state is invalid")

// validate refuses some states.
func (a *machine) validate(_ context.Context, s state, _ *agent.Conn) error {
	if s.N%4 == 0 {
		return errInvalid
	}
	return nil
}

// setState sets the state.
func (x *execution) setState(ctx context.Context, m *model, in Instr) error {
	next := state{m.number(), in.N}
	err := x.UpdateState(ctx, func(s *state) error {
		x.expect(in, "the state", *s, m.State)
		*s = next
		return nil
	})
	if c := agent.ConnFromContext(ctx); c != nil && c.Readonly() && !randtest.Ended(ctx, err) {
		if !errors.Is(err, dohost.ErrForbidden) {
			x.w.Faultf("%s: a message of a readonly connection sets the state: %v", x.name, err)
		}
		return nil
	}
	if in.N%4 == 0 {
		if err == nil {
			x.w.Faultf("%s: Validate refuses a state, and it is set", x.name)
		}
		if errors.Is(err, errInvalid) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	m.State, m.Changes[next.Number] = next, change{in.N, x.incarnation}
	return x.save(ctx, m)
}

// onStateChanged records a change, which must be committed.
func (a *machine) onStateChanged(ctx context.Context, s state, _ *agent.Conn) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	if c, ok := m.Changes[s.Number]; !ok || c != (change{s.N, a.incarnation}) {
		a.w.Faultf("OnStateChanged gets %+v in incarnation %d, want %+v", s, a.incarnation, c)
	}
	if n := len(a.changed); n > 0 && a.changed[n-1] >= s.Number {
		a.w.Faultf("OnStateChanged gets the state %d after %d", s.Number, a.changed[n-1])
	}
	a.changed = append(a.changed, s.Number)
	return nil
}

// checkChanges checks that OnStateChanged got all changes of this incarnation.
func (a *machine) checkChanges(m *model) {
	n := 0
	for _, c := range m.Changes {
		if c.Incarnation == a.incarnation {
			n++
		}
	}
	if n != len(a.changed) {
		a.w.Faultf("OnStateChanged got %d of %d changes", len(a.changed), n)
	}
}
