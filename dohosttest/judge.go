package dohosttest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/anishathalye/porcupine"
)

// answer is what a call returned, or nothing if its caller was not told.
type answer struct {
	known bool
	out   any
}

// String is the answer.
func (a answer) String() string {
	if !a.known {
		return "unknown"
	}
	return fmt.Sprint(a.out)
}

// errNoOrder says that a history is not linearizable.
var errNoOrder = errors.New("no order of these calls, one after another, explains all answers")

// operations are the calls that took effect, or may have: those can do so until the end
// of time. In a picture, each of them has a line of its own.
func (h *history) operations() (ops []porcupine.Operation) {
	line := h.part.clients + 1
	for i, c := range h.calls {
		o := porcupine.Operation{
			ClientId: c.name.client, Input: c.in, Output: answer{c.fate == answered, c.out},
			Call: int64(c.began), Return: int64(c.ended), Metadata: i,
		}
		switch c.fate {
		case notMade, leftOut:
			continue
		case unknown:
			o.ClientId, o.Return = line, int64(len(h.events)+line)
			line++
		}
		ops = append(ops, o)
	}
	return ops
}

// model is the workload's as porcupine knows it.
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

// partition parts calls by their object.
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

// judge asks whether the history is linearizable. Its error is that of the run, if it
// has one.
func (h *history) judge() error { return h.judgeWithin(h.x.patience) }

// noOrder says that the history is not linearizable, if that is soon found out.
func (h *history) noOrder() bool { return errors.Is(h.judgeWithin(h.x.patience/20), errNoOrder) }

func (h *history) judgeWithin(patience time.Duration) error {
	if h.err != nil {
		return h.err
	}
	switch porcupine.CheckOperationsTimeout(h.x.model(), h.operations(), patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return errNoOrder
	}
	return fmt.Errorf("no verdict on a history of %d calls within %v: have fewer Clients or Calls, or a lower Chance, "+
		"or say which Object a call is about", len(h.operations()), patience)
}

// pure says whether the model can be asked twice.
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
			return fmt.Errorf("Model.Step changes the state that it is given: %v, which was %v before %v", s.a, s.b, c.in)
		}
		nextB, outB := x.step(s.b, c.in)
		if !x.equal(nextA, nextB) || !reflect.DeepEqual(outA, outB) {
			return fmt.Errorf("Model.Step says two things about %v in the state %v: %v and %v, then %v and %v", c.in, s.b, outA, nextA, outB, nextB)
		}
		states[key] = twins{nextA, nextB}
	}
	return nil
}
