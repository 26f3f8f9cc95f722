package dohost_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/pointtest"
)

// invokePoints calls an account with ids, and repeats each call until it has an answer.
type invokePoints struct {
	first       map[string]int // the first answer to each call
	interrupted map[string]bool
}

// calls are the calls of a run, each with the sum that it adds.
var invokeCalls = []struct {
	id, method string
	adds       int
}{{"a", "deposit", 1}, {"b", "slow", 10}, {"c", "deposit", 100}, {"d", "fail", 1000}}

func (p *invokePoints) run(ctx context.Context, h *dohosttest.Host) error {
	for _, c := range invokeCalls {
		for range 2 { // the second call is a repetition of one that has an answer
			if err := p.call(ctx, h, c.id, c.method, c.adds); err != nil {
				return err
			}
		}
	}
	return nil
}

// call makes a call until it has an answer, and compares the answer with that of an earlier one.
func (p *invokePoints) call(ctx context.Context, h *dohosttest.Host, id, method string, n int) error {
	var sum int
	policy := &dohost.RetryPolicy{MaxAttempts: 20, ShouldRetry: func(err error, _ int) bool {
		return dohost.RetryIdempotent(err, 0) && codeOf(err) != "call_interrupted"
	}}
	err := dohost.Retry(ctx, policy, func(ctx context.Context) (err error) {
		sum, err = dohost.Invoke[int](ctx, accounts.Get(h, "x"), method, n, &dohost.InvokeOptions{CallID: id})
		return err
	})
	public, failed := errors.AsType[*dohost.PublicError](err)
	switch {
	case codeOf(err) == "call_interrupted" && method == "slow":
		p.interrupted[id] = true
		return nil
	case method == "fail" && failed && public.Code == "refused":
		if _, err = fmt.Sscan(public.Message, &sum); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("call %s: %w", id, err)
	case p.interrupted[id]:
		return fmt.Errorf("call %s was interrupted, and has a result later", id)
	}
	if was, ok := p.first[id]; ok && was != sum {
		return fmt.Errorf("call %s had the answer %d, and has %d later", id, was, sum)
	}
	p.first[id] = sum
	return nil
}

// check compares the balance with the calls: each has had its effect once. The first half of an interrupted call has, too.
func (p *invokePoints) check(ctx context.Context, h *dohosttest.Host) error {
	want := 0
	for _, c := range invokeCalls {
		switch was, ok := p.first[c.id]; {
		case p.interrupted[c.id]:
			want += c.adds / 2
		case !ok:
			return fmt.Errorf("call %s has no answer", c.id)
		default:
			if want += c.adds; was != want {
				return fmt.Errorf("call %s had the answer %d, want %d", c.id, was, want)
			}
		}
	}
	got, err := dohost.Invoke[int](ctx, accounts.Get(h, "x"), "balance", 0, nil)
	if err == nil && got != want {
		err = fmt.Errorf("the balance is %d, want %d", got, want)
	}
	return err
}

// TestCallsWithIDsAtEveryPoint ends incarnations and processes, and lets another process take over the log, during calls with ids. Each call
// that is repeated has its effect once, and always the same answer.
func TestCallsWithIDsAtEveryPoint(t *testing.T) {
	p := &invokePoints{}
	interrupted := 0
	s := dohosttest.Scenario{ // without FullDisk: the error of a method is the answer to its call, also to each repetition
		Classes: []dohost.Class{accountClass()},
		Reset:   func() { *p = invokePoints{map[string]int{}, map[string]bool{}} },
		Run:     p.run,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			interrupted += len(p.interrupted)
			return p.check(ctx, h)
		},
		SharedLog: true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 60, 40))
	replays := flag.Lookup("dohosttest.replay").Value.String() != ""
	if !replays && !invariants.Enabled && !pointtest.Drawn() && interrupted == 0 { // the sample of race builds is small
		t.Error("no call was interrupted")
	}
}
