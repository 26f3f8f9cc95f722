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

// If an ended fiber is deleted or restarted in a Transaction that fails, it still expires in time.
func TestFiberExpiresAfterRolledBackRestartOrDelete(t *testing.T) {
	for name, take := range map[string]func(ctx context.Context, w *fiberAgent, id string) error{
		"restarted": func(ctx context.Context, w *fiberAgent, id string) error {
			_, err := w.Fibers().Restart(ctx, id)
			return err
		},
		"deleted": func(ctx context.Context, w *fiberAgent, _ string) error {
			if n, err := w.Fibers().DeleteEnded(ctx, nil); err != nil || n != 1 {
				return errors.Join(err, errors.New("want one deleted"))
			}
			_, err := agent.StartFiber(ctx, w, testKind, 0, nil) // sets the alarm once more
			return err
		},
		"deleted by its id": func(ctx context.Context, w *fiberAgent, id string) error {
			existed, err := w.Fibers().Delete(ctx, id)
			if err == nil && !existed {
				err = errors.New("want it deleted")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fiberTest{}
			w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return errTest }
			o := &agent.KindOptions{MaxRetries: -1, KeepFailed: time.Hour}
			runFiberTest(t, w, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				s := start(t, h, 0, nil)
				h.Advance(time.Second)
				evict(h)
				do(t, h, func(ctx context.Context, w *fiberAgent) error {
					err := dohost.Transaction(ctx, func(ctx context.Context) error { return errors.Join(take(ctx, w, s.ID), errTest) })
					if err == nil || !strings.HasSuffix(err.Error(), errTest.Error()) || strings.Contains(err.Error(), "\n") {
						t.Error(err)
					}
					release, err := w.KeepAlive(ctx) // sets the alarm, and deletes it
					if err != nil {
						return err
					}
					return release(ctx)
				})
				if at, set := alarm(t, h); !set || at > time.Hour {
					t.Errorf("the alarm is due in %v (%v), want an hour", at, set)
				}
				h.Advance(2 * time.Hour)
				wantEqual(t, "the fiber", inspect(t, h, s.ID).ID, "")
			})
		})
	}
}
