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

// A destroyed agent leaves nothing, not even rows of code that still runs in it.
func TestDestroyLeavesNothing(t *testing.T) {
	w := &fiberTest{run: func(w *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error {
		if err := sleep(ctx, time.Minute); err != nil {
			return err
		}
		w.record("still here")
		return nil
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		start(t, h, 1, nil)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			_, err := a.KeepAlive(ctx)
			return errors.Join(err, dohost.Put(ctx, a.Storage(), "k", 1))
		})
		h.Advance(time.Second)
		err := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error { return a.Destroy(ctx) })
		if !errors.Is(err, agent.ErrDestroyed) || !errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
		id := fiberAgents.Get(h, "a").ID()
		if there, err := h.Host().Exists(ctx, id); there || err != nil {
			t.Error(there, err)
		}
		if d, set := alarm(t, h); set {
			t.Errorf("an alarm is left, in %v", d)
		}
		h.Advance(time.Hour)
		w.wantEvents(t)
		if h.Host().IsLive(id) {
			t.Error("something has woken it")
		}
	})
}

func TestDestroyClosesConnections(t *testing.T) {
	s := serve(t, wireClass(nil))
	c := s.dial(t, "/r")
	c.want(greeting("r", `{"title":"untitled","count":0}`)...)
	c.send(`{"type":"rpc","id":"1","method":"add","args":[5]}`)
	c.want(`{"type":"cf_agent_state","state":{"title":"untitled","count":5}}`,
		`{"type":"rpc","id":"1","success":true,"done":true,"result":5}`)
	err := wireAgents.Get(s, "r").Do(t.Context(), func(ctx context.Context, r *wireAgent) error { return r.Destroy(ctx) })
	if !errors.Is(err, agent.ErrDestroyed) {
		t.Error(err)
	}
	c.wantClose(1000, "destroyed")
	s.dial(t, "/r").want(greeting("r", `{"title":"untitled","count":0}`)...)
}
