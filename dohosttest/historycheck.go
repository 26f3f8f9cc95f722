package dohosttest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/anishathalye/porcupine"
)

// answer is the result of a call, or unknown if the caller did not get it.
type answer struct {
	known bool
	out   any
}

// String returns the answer.
func (a answer) String() string {
	if !a.known {
		return "unknown"
	}
	return fmt.Sprint(a.out)
}

// errNoOrder means that a history is not linearizable.
var errNoOrder = errors.New("no order of these calls, one after another, explains all answers")

// operations returns the calls that took effect or may have: the latter may do so until the
// end of the history, and get a line of their own in a picture.
func (h *history) operations() (ops []porcupine.Operation) {
	line := h.sub.clients + 1
	for i, c := range h.calls {
		o := porcupine.Operation{
			ClientId: c.name.client, Input: c.in, Output: answer{c.outcome == answered, c.out},
			Call: int64(c.began), Return: int64(c.ended), Metadata: i,
		}
		switch c.outcome {
		case notMade, notRun:
			continue
		case unknown:
			o.ClientId, o.Return = line, int64(len(h.events)+line)
			line++
		}
		ops = append(ops, o)
	}
	return ops
}

// model returns the workload's model for porcupine.
func (x *workload) model() porcupine.Model {
	return porcupine.Model{
		Partition: x.partition,
		Init:      x.init,
		Step: func(s, in, out any) (bool, any) {
			next, want := x.step(s, in)
			a := out.(answer)
			return !a.known || x.same(want, a.out), next
		},
		Equal:             x.equal,
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v = %v", in, out) },
	}
}

// partition groups calls by their object.
func (x *workload) partition(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
	at := map[string]int{}
	for _, o := range ops {
		key := x.object(o.Input)
		if _, ok := at[key]; !ok {
			at[key] = len(parts)
			parts = append(parts, nil)
		}
		parts[at[key]] = append(parts[at[key]], o)
	}
	return parts
}

// verify returns an error if the history is not linearizable. If the run has an error, verify returns
// that.
func (h *history) verify() error { return h.verifyWithin(h.x.checkTimeout) }

// noOrder reports whether the history is found not linearizable within a short time.
func (h *history) noOrder() bool { return errors.Is(h.verifyWithin(h.x.checkTimeout/20), errNoOrder) }

func (h *history) verifyWithin(patience time.Duration) error {
	if h.err != nil {
		return h.err
	}
	switch porcupine.CheckOperationsTimeout(h.x.model(), h.operations(), patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return errNoOrder
	}
	return fmt.Errorf("no verdict on a history of %d calls within %v: use fewer Clients or Calls, or a lower Chance, "+
		"or set Object, so that each object has a history of its own", len(h.operations()), patience)
}

// pure checks that the model gives the same result twice.
func (x *workload) pure(h *history) error {
	type twins struct{ a, b any }
	states := map[string]twins{}
	for _, c := range h.calls {
		key := x.object(c.in)
		s, ok := states[key]
		if !ok {
			s = twins{x.init(), x.init()}
		}
		nextA, outA := x.step(s.a, c.in)
		if !x.equal(s.a, s.b) {
			return fmt.Errorf("Model.Step modifies its argument: the state is %v, and was %v before %v", s.a, s.b, c.in)
		}
		nextB, outB := x.step(s.b, c.in)
		if !x.equal(nextA, nextB) || !reflect.DeepEqual(outA, outB) {
			return fmt.Errorf("Model.Step has two results for %v in the state %v: %v and %v, then %v and %v", c.in, s.b, outA, nextA, outB, nextB)
		}
		states[key] = twins{nextA, nextB}
	}
	return nil
}
