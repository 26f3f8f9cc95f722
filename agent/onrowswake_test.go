package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestRowsWake wakes rows that a call has postponed for an hour: after the call, during it, and in another incarnation. The calls for the rows have
// one id, and earlier failures still count.
func TestRowsWake(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 3}}}
	var ids []string
	ready, thinks, fails := false, time.Duration(0), 0
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		ids = append(ids, p.Rows().CallID(ctx))
		if err := dohost.Sleep(ctx, thinks); err != nil {
			return err
		}
		switch {
		case fails > 0:
			fails--
			return errors.New("a dog")
		case !ready:
			return &agent.PostponeError{After: time.Hour, Err: errors.New("no answer yet")}
		}
		return p.done(ctx, l.ID)
	}
	wake := func(ctx context.Context, p *postman) error { return p.Rows().Wake(ctx, ids[0]) }
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		fails = 1
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		wantCalls(t, o, "a", "a")
		inPost(t, ctx, h, wake)
		h.Advance(time.Second)
		wantCalls(t, o, "a")
		h.EvictAll()
		inPost(t, ctx, h, wake)
		h.Advance(time.Second)
		wantCalls(t, o, "a")

		// During the call: the next one follows immediately.
		thinks = 10 * time.Second
		inPost(t, ctx, h, wake)
		h.Advance(time.Second)
		inPost(t, ctx, h, wake)
		h.Advance(8 * time.Second)
		wantCalls(t, o, "a")
		h.Advance(2 * time.Second)
		wantCalls(t, o, "a")
		h.Advance(59 * time.Minute) // the second call was not woken
		wantCalls(t, o)

		// One failure is stored. A second one leaves one attempt, which a wake-up does not give back.
		thinks, fails = 0, 1
		inPost(t, ctx, h, wake)
		h.Advance(time.Millisecond)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) != 1 || tasks[0].Attempt != 2 || tasks[0].ID != ids[0] {
				t.Errorf("the tasks are %+v", tasks)
			}
			return err
		})
		inPost(t, ctx, h, wake) // it waits after a failure
		h.Advance(time.Millisecond)
		wantCalls(t, o, "a")
		ready = true
		h.Advance(5 * time.Second)
		wantCalls(t, o, "a")
		wantNothingLeft(t, ctx, h)
		for _, id := range ids {
			if id == "" || id != ids[0] {
				t.Errorf("the ids of the calls are %q", ids)
			}
		}
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			if id := p.Rows().CallID(ctx); id != "" {
				t.Errorf("a call of a method has the id %q", id)
			}
			return errors.Join(p.Rows().Wake(ctx, ids[0]), p.Rows().Wake(ctx, ""))
		})
	})
}

// TestRowsWakeLeavesParkedRows wakes rows that are parked.
func TestRowsWakeLeavesParkedRows(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}}
	id := ""
	o.deliver = func(p *postman, ctx context.Context, _ letter) error {
		id = p.Rows().CallID(ctx)
		return errors.New("a dog")
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error { return p.Rows().Wake(ctx, id) })
		h.Advance(time.Hour)
		wantCalls(t, o, "a")
	})
}

// TestExtensionSeesParkedRows has an extension that is called for rows that are parked after failures, after interruptions, and because one does not
// decode, in the batch that parks them.
func TestExtensionSeesParkedRows(t *testing.T) {
	var seen []string
	x := agent.Extend(agent.Extension[fiberAgent]{RowsParked: func(ctx context.Context, a agent.Handle, collection string, keys []string) error {
		for _, key := range keys {
			parked, err := a.Rows().Parked(ctx, collection, key)
			if err != nil {
				return err
			}
			seen = append(seen, joinValues(collection, key, parked))
		}
		return nil
	}})
	things := dohost.Collection[string]{
		Name: "things", Key: func(s string) string { return s },
		Indexes: []dohost.Index[string]{{Name: "all", Of: func(s string) dohost.Key { return dohost.KeyOf(s) }}},
	}
	numbers := dohost.Collection[int]{
		Name: things.Name, Key: func(int) string { return "7" },
		Indexes: []dohost.Index[int]{{Name: "all", Of: func(int) dohost.Key { return dohost.KeyOf("7") }}},
	}
	class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }, nil, x, agent.OnFiber(testKind, func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }, nil),
		agent.OnRows(&things, "all", func(w *fiberAgent, ctx context.Context, r dohost.Row[string]) error {
			if r.Value == "interrupted" {
				return dohost.Sleep(ctx, time.Hour)
			}
			return errors.New("no")
		}, &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		for _, put := range []func(ctx context.Context, w *fiberAgent) error{
			func(ctx context.Context, w *fiberAgent) error { return things.Put(ctx, w.Storage(), "failed") },
			func(ctx context.Context, w *fiberAgent) error { return numbers.Put(ctx, w.Storage(), 7) },
			func(ctx context.Context, w *fiberAgent) error { return things.Put(ctx, w.Storage(), "interrupted") },
		} {
			do(t, h, put)
			h.Advance(time.Second)
		}
		h.Kill()
		do(t, h, func(context.Context, *fiberAgent) error { return nil })
		h.Advance(time.Minute)
		if got, want := joinValues(seen), "[things failed true things 7 true things interrupted true]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
