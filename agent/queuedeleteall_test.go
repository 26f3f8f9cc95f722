package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// An item that is enqueued again with the same id after DeleteAll, while the old run is in an Await.
func TestQueueItemAfterDeleteAllHasItsOwnRun(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "old", Takes: 10 * time.Second}, withID("a"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.Storage().DeleteAll(ctx) })
		enqueue(b, work, task{Name: "new", Takes: 20 * time.Second}, withID("a"))
		enqueue(b, work, task{Name: "next", Takes: 1 * time.Second}, withID("b"))
		b.Advance(12 * time.Second)
		b.waitIdle()
		b.wantLines("new begins 1", "old ends 1", "new ends 1", "next begins 1", "next ends 1")
	})
}

// The old run fails: its error must not make a dead letter of the new item.
func TestQueueItemAfterDeleteAllIsNoDeadLetter(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "old", Takes: 10 * time.Second, Fails: 9}, withID("a"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.Storage().DeleteAll(ctx) })
		enqueue(b, work, task{Name: "new", Takes: 90 * time.Second}, withID("a"))
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error {
			l, err := c.DeadLetters().List(ctx, 0)
			if len(l) != 0 {
				t.Errorf("dead: %+v", l)
			}
			return err
		})
	})
}

// A callback that resets its agent and enqueues its own id again: the new item must run.
func TestQueueCallbackResetsAgentAndEnqueuesItself(t *testing.T) {
	const reset agent.Callback[int] = "reset"
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, reset, 0, withID("a"))
		b.waitIdle()
		b.wantLines("reset 1")
	}, agent.OnSchedule(reset, func(c *callbackAgent, ctx context.Context, n int) error {
		if n == 1 {
			return c.write(ctx, "reset 1")
		}
		if err := c.Storage().DeleteAll(ctx); err != nil {
			return err
		}
		_, err := agent.Enqueue(ctx, c, "reset", 1, withID("a"))
		return err
	}))
}
