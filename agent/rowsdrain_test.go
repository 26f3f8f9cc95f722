package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// slowOffice delivers a letter in a second. The letter "bad" fails, and is parked after two calls.
func slowOffice() *postOffice {
	return &postOffice{
		options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 2, BaseDelay: 4 * time.Second}},
		deliver: func(p *postman, ctx context.Context, l letter) error {
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
			if l.ID == "bad" {
				return errors.New("no such address")
			}
			return p.done(ctx, l.ID)
		},
	}
}

// drain drains the agent in one event, and returns the time that it took.
func drain(t *testing.T, ctx context.Context, h *dohosttest.Host, o *agent.DrainOptions) (d agent.Drained, took time.Duration) {
	t.Helper()
	inPost(t, ctx, h, func(ctx context.Context, p *postman) (err error) {
		begin := time.Now()
		d, err = p.Rows().Drain(ctx, o)
		took = time.Since(begin).Round(time.Second)
		return err
	})
	return d, took
}

// TestRowsDrain waits for letters: all of them, those within the limits, and those that arrive during the wait. A parked letter is not pending,
// but one that waits for a retry is.
func TestRowsDrain(t *testing.T) {
	runPost(t, slowOffice(), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		wantDrained := func(o *agent.DrainOptions, want agent.Drained, seconds time.Duration) {
			t.Helper()
			if d, took := drain(t, ctx, h, o); d != want || took != seconds*time.Second {
				t.Errorf("%+v after %v, want %+v after %d s", d, took, want, seconds)
			}
		}
		send := func(ids ...string) {
			t.Helper()
			if err := post(ctx, h, ids...); err != nil {
				t.Fatal(err)
			}
		}
		wantDrained(nil, agent.Drained{Work: agent.WorkDone}, 0)
		send("1", "2", "3")
		wantDrained(&agent.DrainOptions{MaxCycles: 2}, agent.Drained{Cycles: 2}, 2)
		wantDrained(nil, agent.Drained{Cycles: 1, Work: agent.WorkDone}, 1)
		send("4", "5", "6")
		wantDrained(&agent.DrainOptions{MaxTime: 1500 * time.Millisecond}, agent.Drained{Cycles: 1}, 2) // rounded up
		h.Client(func(ctx context.Context) error { return post(ctx, h, "7") })
		wantDrained(nil, agent.Drained{Cycles: 3, Work: agent.WorkDone}, 3) // rounded up, too
		send("bad")
		d, took := drain(t, ctx, h, nil)
		if d != (agent.Drained{Cycles: 2, Work: agent.WorkDone}) || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("%+v after %v with a letter that is parked", d, took)
		}
		wantDrained(nil, agent.Drained{Work: agent.WorkDone}, 0)
	})
}

// TestRowsParked asks about rows that are parked, wait for a retry and are handled.
func TestRowsParked(t *testing.T) {
	runPost(t, slowOffice(), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "bad", "good"); err != nil {
			t.Fatal(err)
		}
		wantParked := func(collection, key string, want bool) {
			t.Helper()
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				got, err := p.Rows().Parked(ctx, collection, key)
				if got != want {
					t.Errorf("the row %q of %q is parked: %t", key, collection, got)
				}
				return err
			})
		}
		h.Advance(3 * time.Second)
		wantParked(letters.Name, "bad", false)
		h.Advance(10 * time.Second)
		wantParked(letters.Name, "bad", true)
		wantParked(letters.Name, "good", false)
		wantParked("another", "bad", false)
	})
}

// TestRowsDrainOfDeletedRow deletes the row that a drain waits for.
func TestRowsDrainOfDeletedRow(t *testing.T) {
	for name, test := range map[string]struct {
		remove func(ctx context.Context, s *dohost.Storage) error
		within time.Duration
	}{
		"row": {func(ctx context.Context, s *dohost.Storage) error {
			_, err := letters.Delete(ctx, s, "bad")
			return err
		}, 0},
		"all": {func(ctx context.Context, s *dohost.Storage) error { return s.DeleteAll(ctx) }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := slowOffice()
			o.options.Retry.BaseDelay = time.Hour
			runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				if err := post(ctx, h, "bad"); err != nil {
					t.Fatal(err)
				}
				h.Advance(5 * time.Second)
				h.Client(func(ctx context.Context) error {
					return postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error { return test.remove(ctx, p.Storage()) })
				})
				if d, took := drain(t, ctx, h, &agent.DrainOptions{MaxTime: -1}); d.Work != agent.WorkDone || took > test.within {
					t.Errorf("%+v after %v", d, took)
				}
			})
		})
	}
}

// TestRowsDrainInterrupted ends the incarnation, and the context, during a drain.
func TestRowsDrainInterrupted(t *testing.T) {
	runPost(t, slowOffice(), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "1", "2", "3"); err != nil {
			t.Fatal(err)
		}
		h.Client(func(ctx context.Context) error {
			if err := dohost.Sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			h.EvictAll()
			return nil
		})
		err := postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error {
			_, err := p.Rows().Drain(ctx, nil)
			return err
		})
		if !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("a drain whose incarnation ends: %v", err)
		}
		why := errors.New("the caller has gone")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			ctx, cancel := context.WithTimeoutCause(ctx, 500*time.Millisecond, why)
			defer cancel()
			if d, err := p.Rows().Drain(ctx, nil); !errors.Is(err, why) || d.Work != agent.WorkPending {
				t.Errorf("%+v, %v", d, err)
			}
			return nil
		})
		h.Advance(time.Minute)
		wantNothingLeft(t, ctx, h)
	})
}

func TestRowsDrainMisuse(t *testing.T) {
	o := &postOffice{}
	drained := 0
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if _, err := p.Rows().Drain(ctx, nil); errors.Is(err, dohost.ErrMisuse) {
			drained++
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "1"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		if drained != 1 {
			t.Errorf("%d drains in the method are refused", drained)
		}
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			err := dohost.Transaction(ctx, func(ctx context.Context) error { return p.Rows().Wait(ctx) })
			if !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("a wait in a transaction: %v", err)
			}
			for name, call := range map[string]func(context.Context) error{
				"Wait":    p.Rows().Wait,
				"Pending": func(ctx context.Context) error { _, err := p.Rows().Pending(ctx); return err },
				"Drain":   func(ctx context.Context) error { _, err := p.Rows().Drain(ctx, nil); return err },
			} {
				if err := dohost.Await(ctx, call); !errors.Is(err, dohost.ErrMisuse) {
					t.Errorf("%s without the turn: %v", name, err)
				}
			}
			return nil
		})
	})
}

// withValues is a context of a task with the values of the call that has started it.
type withValues struct {
	context.Context
	call context.Context
}

func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.call.Value(key)
}

// TestRowsWaitOfSuspect has a call that waits until another row is handled, in two tasks. The process ends twice during both calls, so it may be either that
// ends it, and one of them runs at a time. A call that waits runs no code, so it does not keep the other back.
func TestRowsWaitOfSuspect(t *testing.T) {
	sent := func(ctx context.Context, p *postman) error {
		for {
			row, _, err := letters.Get(ctx, p.Storage(), "other")
			if err != nil || row.Value.State == "sent" {
				return err
			}
			if err := p.Rows().Wait(ctx); err != nil {
				return err
			}
		}
	}
	o := &postOffice{options: &agent.RowsOptions{Parallel: 2}, deliver: func(p *postman, ctx context.Context, l letter) error {
		if l.ID == "other" {
			return errors.Join(dohost.Sleep(ctx, time.Second), p.done(ctx, l.ID))
		}
		both := make(chan error, 2)
		for range 2 {
			err := p.Object().Go(ctx, "wait", func(task context.Context) error {
				both <- sent(withValues{task, ctx}, p)
				return nil
			})
			if err != nil {
				return err
			}
		}
		for range 2 {
			if err, _, failed := dohost.Recv(ctx, both); err != nil || failed != nil {
				return errors.Join(err, failed)
			}
		}
		return p.done(ctx, l.ID)
	}}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "call", "other"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h.Advance(500 * time.Millisecond)
			h.Kill()
		}
		h.Advance(1500 * time.Millisecond)
		if calls := o.took(); len(calls) != 6 {
			t.Errorf("calls %q", calls)
		}
		wantNothingLeft(t, ctx, h)
	})
}

// TestRowsWaitOfSuspectEnds has a suspect that runs on after a wait, for two seconds, while another suspect runs for one. The third begins after
// both, also if the wait ends with an ErrFenced of another object.
func TestRowsWaitOfSuspectEnds(t *testing.T) {
	for name, cause := range map[string]error{"a time limit": errors.New("late"), "a fence of another object": dohost.ErrFenced} {
		t.Run(name, func(t *testing.T) {
			runSuspects(t, func(ctx context.Context, p *postman) error {
				wait, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, cause)
				defer cancel()
				if err := p.Rows().Wait(wait); !errors.Is(err, cause) {
					return err
				}
				return nil
			})
		})
	}
}

// runSuspects has a suspect that waits for 0.1 s, and runs on for two seconds, while another one runs for one. The third begins after both.
func runSuspects(t *testing.T, wait func(context.Context, *postman) error) {
	o := &postOffice{options: &agent.RowsOptions{Parallel: 3}, deliver: func(p *postman, ctx context.Context, l letter) error {
		if l.ID == "1" {
			if err := wait(ctx, p); err != nil {
				return err
			}
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		return errors.Join(dohost.Sleep(ctx, time.Second), p.done(ctx, l.ID))
	}}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "1", "2", "3"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h.Advance(500 * time.Millisecond)
			h.Kill()
		}
		o.took()
		for _, want := range []string{"1,2", "", "3"} { // after 0.5 s, 1.5 s and 2.5 s
			h.Advance(500 * time.Millisecond)
			if got := strings.Join(o.took(), ","); got != want {
				t.Errorf("calls %q, want %q", got, want)
			}
			h.Advance(500 * time.Millisecond)
		}
		h.Advance(time.Second)
		wantNothingLeft(t, ctx, h)
	})
}

// TestWaitElsewhereEndsWithPanic has a suspect that recovers a panic of the function that waits, and runs on for two seconds. The third suspect
// begins after it and the second one.
func TestWaitElsewhereEndsWithPanic(t *testing.T) {
	waits := func(ctx context.Context, p *postman) (err error) {
		defer func() { _ = recover() }()
		return p.Rows().WaitElsewhere(ctx, func(ctx context.Context) error {
			_ = dohost.Sleep(ctx, 100*time.Millisecond)
			panic("while it waits")
		})
	}
	runSuspects(t, waits)
}

// TestWaitElsewhereNested has a suspect with two waits, one within the other.
func TestWaitElsewhereNested(t *testing.T) {
	runSuspects(t, func(ctx context.Context, p *postman) error {
		return p.Rows().WaitElsewhere(ctx, func(ctx context.Context) error {
			return p.Rows().WaitElsewhere(ctx, func(ctx context.Context) error { return dohost.Sleep(ctx, 100*time.Millisecond) })
		})
	})
}

// TestCostOfWakeByRow counts the commits of a row that wakes its agent: that of the insertion, that which begins the call, and that of the effects
// and the end of the call. So it is one more than those of two calls of a method.
func TestCostOfWakeByRow(t *testing.T) {
	runPost(t, &postOffice{}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		records := func(do func() error) int64 {
			t.Helper()
			before := h.Host().Stats().Records
			if err := do(); err != nil {
				t.Fatal(err)
			}
			h.Advance(time.Second)
			h.EvictAll()
			return h.Host().Stats().Records - before
		}
		write := func(state string) func() error {
			return func() error {
				return postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error {
					return letters.Put(ctx, p.Storage(), letter{ID: "1", State: state})
				})
			}
		}
		records(write("")) // the first wake of the object
		if n := records(write("sent")); n != 1 {
			t.Errorf("%d commits of a call", n)
		}
		if n := records(write("pending")); n != 3 {
			t.Errorf("%d commits of a row that is inserted and handled", n)
		}
		if n := records(func() error { return nil }); n != 0 {
			t.Errorf("%d commits of an agent without rows", n)
		}
		wantNothingLeft(t, ctx, h)
	})
}
