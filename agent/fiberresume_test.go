package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// TestFiberWaitsForDurableInterruptionAfterProcessEnd keeps the disk busy from the constructor of the incarnation that
// resumes a fiber. The fiber starts before the disk has synced, unless its process has ended: then the interruption
// must be durable first, or it would not count if the fiber ended this process too.
func TestFiberWaitsForDurableInterruptionAfterProcessEnd(t *testing.T) {
	for name, c := range map[string]struct {
		restart bool
		want    int // runs while the disk is busy
	}{"its incarnation has ended": {false, 1}, "its process has ended": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, runs := objectstore.NewMemFS(), 0
				constructing := func() {}
				class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) {
					constructing()
					return &fiberAgent{a, nil}, nil
				}, nil, agent.OnFiber(testKind, func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
					if runs++; f.Attempt != runs-1 {
						t.Errorf("run %d is attempt %d", runs, f.Attempt)
					}
					return sleep(ctx, time.Hour)
				}, nil))
				open := func() *dohost.Host {
					h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), class)
					if err != nil {
						t.Fatal(err)
					}
					return h
				}
				do := func(h *dohost.Host, fn func(ctx context.Context, w *fiberAgent) error) {
					if err := fiberAgents.Get(h, "a").Do(t.Context(), fn); err != nil {
						t.Error(err)
					}
				}
				h := open()
				do(h, func(ctx context.Context, w *fiberAgent) error {
					_, err := agent.StartFiber(ctx, w, testKind, 0, nil)
					return err
				})
				synctest.Wait()
				wantEqual(t, "runs", runs, 1)

				runs = 0
				var release func()
				constructing = func() { release, runs = fs.HoldSyncs(), 1 }
				if c.restart {
					kernel.OfHost(h).Abandon()
					fs = fs.Crash(0, 0)
					h = open()
				} else {
					h.Evict(fiberAgents.Get(h, "a").ID(), dohost.EndFence)
				}
				go do(h, nothing)
				synctest.Wait()
				wantEqual(t, "runs while the disk is busy", runs-1, c.want)
				release()
				synctest.Wait()
				wantEqual(t, "runs", runs-1, 1)
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
