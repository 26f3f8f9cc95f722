package ledger_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// retry calls f like a client that does not give up.
func retry(ctx context.Context, f func(context.Context) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, f)
}

// pointRun pays at every point, and counts the unknown outcomes.
type pointRun struct {
	*shop
	// id and reported are the operation that was unknown, and whether it was, in the present run.
	id       ledger.ID
	reported bool
	// effects is the number of effects when the outcome was reported as unknown.
	effects int

	unknown int // reports of all runs

	// mayBeUnknown is set if the outcome may be unknown with another policy than AtMostOnce. atReport checks a report, if it is set.
	mayBeUnknown bool
	atReport     func(ledger.ID) error
}

// pay pays until there is a result. It resolves an unknown operation by the effects at the bank.
func (s *pointRun) pay(ctx context.Context, h *dohosttest.Host) error {
	o := orders.Get(h, "7")
	call := func(ctx context.Context) error {
		got, err := pay(ctx, o)
		if err != nil {
			return err
		}
		if want := receipt(s.calls()[0]) + s.more; got != want {
			return fmt.Errorf("the result is %.200q, want %.200q", got, want)
		}
		return nil
	}
	err := retry(ctx, call)
	if !errors.Is(err, ledger.ErrUnknown) {
		return err
	}
	e, _ := errors.AsType[*ledger.UnknownError](err)
	s.reported, s.id, s.effects = true, e.ID, s.bank.Effects(string(e.ID))
	s.unknown++
	if s.atReport != nil {
		if err := s.atReport(e.ID); err != nil {
			return err
		}
	}
	resolve := (*order).done
	if s.effects == 0 {
		resolve = (*order).notDone
	}
	err = retry(ctx, func(ctx context.Context) error {
		err := dohost.CallNoResult(ctx, o, resolve, e.ID)
		if errors.Is(err, ledger.ErrEnded) { // an earlier call has resolved it
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	err = retry(ctx, call)
	if errors.Is(err, ledger.ErrUnknown) && s.effects == 0 { // the second interruption of a pair
		return nil
	}
	return err
}

// check compares the bank's book with the record.
func (s *pointRun) check(ctx context.Context, h *dohosttest.Host) error {
	all, err := dohost.CallNoArg(ctx, orders.Get(h, "7"), (*order).all)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("%d operations, want 1: %+v", len(all), all)
	}
	effects, of := s.bank.Total(), all[0]
	switch {
	case effects > 1:
		return fmt.Errorf("the customer was charged %d times", effects)
	case s.kind.Policy != ledger.PolicyAtMostOnce && !s.mayBeUnknown && (s.reported || effects != 1 || of.Status != ledger.StatusCompleted):
		return fmt.Errorf("with %v there were %d charges (unknown: %v), and the operation is %+v", s.kind.Policy, effects, s.reported, of)
	case of.Status == ledger.StatusCompleted && effects != 1:
		return fmt.Errorf("the operation has completed, and the customer was charged %d times", effects)
	case of.Status != ledger.StatusCompleted && of.Status != ledger.StatusUnknown:
		return fmt.Errorf("at rest the operation is %+v", of)
	case s.reported && s.effects == 1 && of.Status != ledger.StatusCompleted:
		return fmt.Errorf("the operation was resolved as done, and is %+v", of)
	case (of.Status == ledger.StatusCompleted) != (string(of.Result) == `"`+receipt(of.ID)+s.more+`"`):
		return fmt.Errorf("the %s operation %s has the result %.200s", of.Status, of.ID, of.Result)
	}
	_, counts, err := outcomesOf(ctx, h, orders.Get(h, "7"))
	if open := counts["unknown"] - counts["done"] - counts["not_done"]; err != nil || s.reported && counts["unknown"] == 0 || open < 0 || open > 1 ||
		of.Status == ledger.StatusCompleted && open != 0 {
		return fmt.Errorf("the counts of the %s operation are %v, %v", of.Status, counts, err)
	}
	parts, err := dohost.CallNoArg(ctx, orders.Get(h, "7"), (*order).parts)
	if want := (len(of.Result) - 1) >> 20; err != nil || want > 0 && parts != want+1 || want <= 0 && parts != 0 {
		return fmt.Errorf("a result of %d bytes has %d parts, %v", len(of.Result), parts, err)
	}
	for _, id := range s.calls() {
		if id != of.ID {
			return fmt.Errorf("a call has the ID %s, and the operation is %+v", id, of)
		}
	}
	return nil
}

func testEveryPoint(t *testing.T, p ledger.Policy, more string, sample int) {
	s := &pointRun{shop: newShop(p)}
	s.more = more
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk:  pointtest.Case(more == ""),
		Classes:   []dohost.Class{s.class()},
		Services:  []*dohosttest.FakeService{&s.bank},
		Run:       s.pay,
		Check:     s.check,
		HadEffect: func(id string) bool { return s.bank.Effects(id) > 0 },
		Reset:     func() { s.reported = false; s.reset() },
	}, sample, 200))
	replays := flag.Lookup("dohosttest.replay").Value.String() != ""
	if mayBe := p == ledger.PolicyAtMostOnce; !t.Failed() && !replays && (s.unknown > 0) != mayBe && (!mayBe || !pointtest.Drawn()) {
		t.Errorf("the outcome was reported as unknown %d times", s.unknown)
	}
}

func TestPolicyAtMostOnceAtEveryPoint(t *testing.T) {
	testEveryPoint(t, ledger.PolicyAtMostOnce, "", 60)
}

func TestPolicyIdempotentAtEveryPoint(t *testing.T) {
	testEveryPoint(t, ledger.PolicyIdempotent, "", 60)
}

func TestPolicyReconcileAtEveryPoint(t *testing.T) { testEveryPoint(t, ledger.PolicyReconcile, "", 60) }

// TestResultInPartsAtEveryPoint has a result of two parts.
func TestResultInPartsAtEveryPoint(t *testing.T) {
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) { testEveryPoint(t, p, strings.Repeat("x", mebibyte), 10) })
	}
}

// TestDoTwiceAtEveryPoint lets two clients pay at the same time.
func TestDoTwiceAtEveryPoint(t *testing.T) {
	s := &pointRun{shop: newShop(ledger.PolicyIdempotent)}
	s.bank.Latency = time.Second
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{s.class()},
		Services: []*dohosttest.FakeService{&s.bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			other := h.Client(func(ctx context.Context) error { return s.pay(ctx, h) })
			return errors.Join(s.pay(ctx, h), other.Wait())
		},
		Check: s.check,
		Reset: func() { s.reported = false; s.reset() },
	}, 30, 0))
}
