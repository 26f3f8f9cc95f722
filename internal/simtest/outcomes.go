package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// outcomes has the results of a client's additions, which it does not repeat. The addition
// k adds 4^k, so that the total contains how often each one happened.
type outcomes struct {
	errs []error
	ran  []dohost.Outcome
	seen []int // the answered totals
}

const outcomesSent = 5

func amount(k int) int { return 1 << (2 * k) }

// happened returns how often addition k is in a total.
func happened(total, k int) int { return total >> (2 * k) & 3 }

func (o *outcomes) run(ctx context.Context, h *dohosttest.Host) error {
	for k := range outcomesSent {
		total, err := dohost.Call(ctx, counters.Get(h, "a"), (*counter).addAgain, amount(k))
		var ran dohost.Outcome
		if err == nil {
			o.seen = append(o.seen, total)
		} else if e, ok := errors.AsType[*dohost.Error](err); !ok {
			return fmt.Errorf("addition %d: not an *Error: %v", k, err)
		} else {
			ran = e.Outcome
			h.Advance(time.Second)
		}
		o.errs, o.ran = append(o.errs, err), append(o.ran, ran)
	}
	return nil
}

func (o *outcomes) check(ctx context.Context, h *dohosttest.Host) error {
	t, err := dohost.Call(ctx, counters.Get(h, "a"), (*counter).tally, none{})
	if err != nil {
		return err
	}
	err = differ("memory and storage", t.Memory, t.Stored)
	for k, answer := range o.errs {
		n := happened(t.Stored, k)
		switch {
		case n > 1:
			err = errors.Join(err, fmt.Errorf("addition %d happened %d times", k, n))
		case n == 0 && (answer == nil || o.ran[k] == dohost.OutcomeRan):
			err = errors.Join(err, fmt.Errorf("addition %d is lost, its client got %v", k, answer))
		case n == 1 && answer != nil && o.ran[k] == dohost.OutcomeNotRun:
			err = errors.Join(err, fmt.Errorf("addition %d happened, its client got the outcome that it did not run: %v", k, answer))
		}
	}
	for _, total := range o.seen {
		for k := range outcomesSent {
			if happened(total, k) > happened(t.Stored, k) {
				err = errors.Join(err, fmt.Errorf("an answer counts addition %d, which is not there", k))
			}
		}
	}
	return err
}

// newOutcomes checks that the Outcome of every error is true.
func newOutcomes() dohosttest.Scenario {
	o := new(outcomes)
	return dohosttest.Scenario{
		Classes: []dohost.Class{counterClass()},
		Reset:   func() { *o = outcomes{} },
		Run:     o.run,
		Check:   o.check,
	}
}
