package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// The callbacks of the scenarios. Each writes one line without awaiting, so the line is written once.
const (
	once   agent.Callback[string] = "once"
	recur  agent.Callback[string] = "recur"  // until it has run some times
	slowly agent.Callback[string] = "slowly" // after an Await
	never  agent.Callback[string] = "never"
)

func scenarioClass(o *callbackLog) dohost.Class {
	return callbackClass(o, nil, agent.OnSchedule(once, (*callbackAgent).appendLine), agent.OnSchedule(recur, (*callbackAgent).recur),
		agent.OnSchedule(slowly, func(c *callbackAgent, ctx context.Context, text string) error {
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
			return c.write(ctx, text)
		}),
		agent.OnSchedule(never, func(c *callbackAgent, ctx context.Context, text string) error {
			err := c.write(ctx, text)
			if errors.Is(err, dohost.ErrNoSpace) {
				err = c.write(ctx, text)
			}
			return errors.Join(err, errors.New("never"))
		}))
}

// recurringRuns is the number of runs of each recurring schedule.
var recurringRuns = map[string]int{"interval": 3, "cron": 2}

// recur cancels its schedule in the last run.
func (c *callbackAgent) recur(ctx context.Context, text string) error {
	lines, err := c.lines(ctx)
	if err != nil {
		return err
	}
	if err := c.write(ctx, text); err != nil {
		return err
	}
	if count(lines, text) < recurringRuns[text]-1 {
		return nil
	}
	all, err := c.Schedules().List(ctx, &agent.ScheduleQuery{Callback: string(recur)})
	for _, s := range all {
		if string(s.Payload) == fmt.Sprintf("%q", text) {
			_, err := c.Schedules().Cancel(ctx, s.ID)
			return err
		}
	}
	return errors.Join(err, errors.New("recur: its schedule is not there"))
}

func count(lines []string, text string) (n int) {
	for _, l := range lines {
		if l == text {
			n++
		}
	}
	return n
}

// callOnce calls do in one event, once, even if the caller itself is repeated.
func callOnce(ctx context.Context, h *dohosttest.Host, do func(context.Context, *callbackAgent) error) error {
	return doUntilDone(ctx, h, func(ctx context.Context, c *callbackAgent) error {
		planned, _, err := dohost.Get[bool](ctx, c.Storage(), "planned")
		if !planned && err == nil {
			err = dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(do(ctx, c), dohost.Put(ctx, c.Storage(), "planned", true))
			})
		}
		return errors.Join(err, c.checkAlarm(ctx))
	})
}

// doUntilDone repeats do in events until it has run, and found space on the disk.
func doUntilDone(ctx context.Context, h *dohosttest.Host, do func(context.Context, *callbackAgent) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return callbackAgents.Get(h, "a").Do(ctx, do)
	})
}

// checkAlarms checks periodically that all rows have their alarm.
func checkAlarms(ctx context.Context, h *dohosttest.Host) error {
	for range 3 {
		h.Advance(1500 * time.Millisecond)
		if err := doUntilDone(ctx, h, func(ctx context.Context, c *callbackAgent) error { return c.checkAlarm(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// checkLines compares an agent's lines with the expected number of each, and expects no other rows.
func checkLines(ctx context.Context, h *dohosttest.Host, want map[string]int) error {
	return callbackAgents.Get(h, "a").Do(ctx, func(ctx context.Context, c *callbackAgent) error {
		lines, err := c.lines(ctx)
		for text, n := range want {
			if got := count(lines, text); got != n {
				err = errors.Join(err, fmt.Errorf("%q is there %d times, not %d", text, got, n))
			}
		}
		return errors.Join(err, c.checkAlarm(ctx), c.checkNoRows(ctx))
	})
}

func TestSchedulesAtEveryPoint(t *testing.T) {
	o := &callbackLog{}
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		Classes:  []dohost.Class{scenarioClass(o)},
		Options:  dohost.Options{Listener: o.listener()},
		Reset:    o.reset,
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := callOnce(ctx, h, func(ctx context.Context, c *callbackAgent) error {
				_, err := agent.Schedule(ctx, c, agent.After(time.Second), once, "once", nil)
				_, err2 := agent.Schedule(ctx, c, agent.After(time.Second), slowly, "slowly", nil)
				_, err3 := agent.Schedule(ctx, c, agent.Every(2*time.Second), recur, "interval", nil)
				_, err4 := agent.Schedule(ctx, c, agent.Cron("* * * * *", ""), recur, "cron", nil)
				return errors.Join(err, err2, err3, err4)
			})
			return errors.Join(err, checkAlarms(ctx, h))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			return checkLines(ctx, h, map[string]int{"once": 1, "slowly": 1, "interval": 3, "cron": 2})
		},
	}, 30, 60))
}

func TestQueueAtEveryPoint(t *testing.T) {
	o := &callbackLog{}
	s := dohosttest.Scenario{
		Classes:  []dohost.Class{scenarioClass(o)},
		Options:  dohost.Options{Listener: o.listener()},
		Reset:    o.reset,
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := callOnce(ctx, h, func(ctx context.Context, c *callbackAgent) error {
				var errs []error
				for n, cb := range []agent.Callback[string]{once, slowly, never, once} {
					_, err := agent.Enqueue(ctx, c, cb, fmt.Sprint("item ", n), &agent.QueueOptions{
						ID: fmt.Sprint("item ", n), Retry: dohost.RetryPolicy{MaxAttempts: 2},
					})
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
			return errors.Join(err, checkAlarms(ctx, h))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			return errors.Join(checkOrder(ctx, h), checkLines(ctx, h, map[string]int{"item 0": 1, "item 1": 1, "item 3": 1}))
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 50, 60))
}

// checkOrder expects the items in order and the third one dead after two attempts, and removes that one.
func checkOrder(ctx context.Context, h *dohosttest.Host) error {
	return callbackAgents.Get(h, "a").Do(ctx, func(ctx context.Context, c *callbackAgent) error {
		lines, err := c.lines(ctx)
		if err != nil {
			return err
		}
		if !slices.IsSorted(lines) {
			err = fmt.Errorf("they ran out of order: %q", lines)
		}
		if n := count(lines, "item 2"); n < 2 {
			err = errors.Join(err, fmt.Errorf("the failing item ran %d times", n))
		}
		checked, _, err2 := dohost.Get[bool](ctx, c.Storage(), "checked")
		if err = errors.Join(err, err2); err != nil || checked {
			return err
		}
		dead, err := c.DeadLetters().List(ctx, 0)
		if err != nil || len(dead) != 1 || dead[0].ID != "item 2" || !strings.Contains(dead[0].Error, "never") {
			return fmt.Errorf("dead letters: %+v, %w", dead, err)
		}
		_, err = c.DeadLetters().Delete(ctx, "item 2")
		return errors.Join(err, dohost.Put(ctx, c.Storage(), "checked", true))
	})
}
