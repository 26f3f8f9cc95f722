package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// If a process that dies for other reasons cuts off a schedule's runs, the schedule is kept as a dead letter
// with its payload, and runs when an operator retries it.
func TestScheduleCutOffTooOftenIsADeadLetter(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		once := schedule(b, agent.After(0), work, task{Name: "innocent", Takes: 10 * time.Second}, nil)
		every := schedule(b, agent.Every(time.Hour), work, task{Name: "hourly", Takes: time.Second}, nil)
		for range 5 {
			b.Advance(5 * time.Second)
			b.Crash()
		}
		b.Advance(time.Minute)
		b.wantReports("schedule:dead", "schedule:dead callback=work err=agent: the end of the incarnation interrupted every attempt depth=1")
		if got := b.deadLetterIDs(); len(got) != 1 || got[0] != once {
			t.Fatalf("dead letters %q, want the schedule %s", got, once)
		}
		if left := b.schedules(nil); len(left) != 1 || left[0].ID != every {
			t.Errorf("schedules left: %+v", left)
		}
		b.do(func(ctx context.Context, c *callbackAgent) error {
			retried, err := c.DeadLetters().Retry(ctx, once)
			if !retried {
				t.Error("Retry did not find the schedule")
			}
			return err
		})
		b.Advance(time.Minute)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			lines, err := c.lines(ctx)
			if len(lines) == 0 || lines[len(lines)-1] != "innocent ends 6" {
				t.Errorf("wrote %q, want the end of the sixth run last", lines)
			}
			return err
		})
		if got := b.deadLetterIDs(); len(got) != 0 {
			t.Errorf("dead letters after the retry: %q", got)
		}
	})
}
