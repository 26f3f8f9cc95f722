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
)

func (b *bench) queued() (ids []string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) error {
		all, err := c.Queue().List(ctx, nil)
		for _, q := range all {
			ids = append(ids, q.ID)
		}
		return err
	})
	return ids
}

func (b *bench) dead() (ids []string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) error {
		all, err := c.DeadLetters().List(ctx, 0)
		for _, d := range all {
			ids = append(ids, d.ID)
		}
		return err
	})
	return ids
}

func called(id string) *agent.QueueOptions { return &agent.QueueOptions{ID: id} }

func TestQueueRunsOneAtATimeInOrder(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		b.do(func(ctx context.Context, c *clerk) error {
			for n := range 3 {
				if _, err := agent.Enqueue(ctx, c, work, task{Name: fmt.Sprint(n), Takes: 40 * time.Second}, nil); err != nil {
					return err
				}
			}
			return c.write(ctx, "enqueued") // it runs later, though it could start now
		})
		enqueue(b, note, "last", called("last"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *clerk) error {
			all, err := c.Queue().List(ctx, &agent.QueueQuery{Callback: "work", Limit: 2})
			if len(all) != 2 || !all[0].Running || all[1].Running || !strings.HasPrefix(string(all[1].Payload), `{"Name":"1",`) {
				t.Errorf("%+v", all)
			}
			return err
		})
		b.rest()
		b.wrote("enqueued", "0 begins 1", "0 ends 1", "1 begins 1", "1 ends 1", "2 begins 1", "2 ends 1", "last")
		ran := "queue:run callback=work behind="
		b.told("queue", ran+"3", ran+"2", ran+"1", "queue:run callback=note behind=0")
		if left := b.queued(); left != nil {
			t.Errorf("left: %q", left)
		}
	})
}

func TestQueueDoesNotWaitForTheAlarm(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		enqueue(b, note, "a", nil)
		enqueue(b, note, "b", nil)
		b.rest()
		b.wrote("a", "b")
		if strings.Contains(b.Log(), " alarm, ") {
			t.Error("the alarm has rung")
		}
	})
}

func TestQueueStartsLaterWhenOverloaded(t *testing.T) {
	withClerk(t, dohost.Options{MaxEvents: 2}, func(t *testing.T, b *bench) {
		b.do(func(ctx context.Context, c *clerk) error {
			pause := func(ctx context.Context) error { return dohost.Sleep(ctx, 10*time.Second) }
			for range 2 {
				if err := c.Object().Go(ctx, "pause", pause); err != nil {
					return err
				}
			}
			_, err := agent.Enqueue(ctx, c, note, "a", nil)
			return err
		})
		b.Advance(12 * time.Second)
		b.wrote("a")
	})
}

func TestQueueItemThatFailsIsADeadLetter(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		enqueue(b, work, task{Name: "a", Fails: 2}, called("a"))
		enqueue(b, work, task{Name: "b", Fails: 3}, called("b"))
		enqueue(b, work, task{Name: "c", Fails: 1}, &agent.QueueOptions{ID: "c", Retry: dohost.RetryPolicy{MaxAttempts: 1}})
		enqueue(b, note, "d", nil)
		b.rest()
		b.wrote("a begins 1", "a begins 2", "a begins 3", "a ends 3",
			"b begins 1", "b begins 2", "b begins 3", "c begins 1", "d")
		b.told("queue:dead", "queue:dead callback=work err=b fails depth=1", "queue:dead callback=work err=c fails depth=2")
		b.do(func(ctx context.Context, c *clerk) error {
			all, err := c.DeadLetters().List(ctx, 1)
			if len(all) != 1 || all[0].ID != "b" || all[0].Error != "b fails" ||
				!strings.Contains(string(all[0].Payload), `"Name":"b"`) {
				t.Errorf("%+v", all)
			}
			return err
		})
		b.do(func(ctx context.Context, c *clerk) error {
			retried, err := c.DeadLetters().Retry(ctx, "b")
			dropped, err2 := c.DeadLetters().Delete(ctx, "c")
			none, err3 := c.DeadLetters().Retry(ctx, "c")
			never, err4 := c.DeadLetters().Delete(ctx, "")
			if !retried || !dropped || none || never {
				t.Error(retried, dropped, none, never)
			}
			if _, err := c.DeadLetters().Retry(ctx, ""); err != nil {
				t.Error(err)
			}
			return errors.Join(err, err2, err3, err4)
		})
		b.rest()
		if left := b.dead(); left != nil {
			t.Errorf("left: %q", left)
		}
		b.told("queue:run callback=work", "queue:run callback=work behind=3", "queue:run callback=work behind=0")
	})
}

func TestDeadLetterOfAnIDQueuedAgain(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		fail := func(n int) {
			enqueue(b, work, task{Name: fmt.Sprint(n), Takes: time.Second, Fails: 9},
				&agent.QueueOptions{ID: "a", Retry: dohost.RetryPolicy{MaxAttempts: 1}})
		}
		fail(1)
		b.rest()
		fail(2)
		b.do(func(ctx context.Context, c *clerk) error {
			existed, err := c.DeadLetters().Retry(ctx, "a")
			if existed || err == nil || !strings.Contains(err.Error(), `an item with the id "a" is already in the queue`) {
				t.Error(existed, err)
			}
			return nil
		})
		b.rest()
		b.do(func(ctx context.Context, c *clerk) error {
			all, err := c.DeadLetters().List(ctx, 0)
			if len(all) != 1 || all[0].Error != "2 fails" || !strings.Contains(string(all[0].Payload), `"2"`) {
				t.Errorf("%+v", all)
			}
			_, err2 := c.DeadLetters().Delete(ctx, "a")
			return errors.Join(err, err2, c.empty(ctx))
		})
	})
}

// empty returns an error if jobs have left rows.
func (c *clerk) empty(ctx context.Context) error {
	type row struct{}
	for _, name := range []string{"dohost.jobs", "dohost.queue", "dohost.dead", "dohost.payloads"} {
		of := dohost.Collection[row]{Name: name}
		if n, err := of.Count(ctx, c.Storage(), nil); err != nil || n > 0 {
			return fmt.Errorf("%d rows are left in %s, %w", n, name, err)
		}
	}
	if _, set, err := c.Object().GetAlarm(ctx); set || err != nil {
		return fmt.Errorf("an alarm is left, %w", err)
	}
	return nil
}

func TestQueueItemGetsNewPayloadInItsPlace(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		enqueue(b, work, task{Name: "first", Takes: 10 * time.Second, Fails: 9}, called("a"))
		enqueue(b, note, "old", called("b"))
		enqueue(b, note, "c", called("c"))
		b.Advance(time.Second)
		enqueue(b, note, "new", called("b"))
		enqueue(b, note, "second", called("a")) // the first runs, and its failure will be ignored
		if got := b.queued(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("queued: %q", got)
		}
		b.Advance(time.Second)
		b.wrote("first begins 1") // one at a time
		b.rest()
		b.wrote("first begins 1", "second", "new", "c")
		b.told("queue:dead")
		if got := len(b.o.told("queue:run")); got != 3 {
			t.Errorf("%d runs counted", got)
		}
		b.do(func(ctx context.Context, c *clerk) error { return c.empty(ctx) })
	})
}

func TestDequeue(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		enqueue(b, work, task{Name: "a", Takes: 10 * time.Second, Fails: 9}, called("a"))
		enqueue(b, note, "b", called("b"))
		enqueue(b, note, "c", called("c"))
		b.Advance(time.Second)
		for id, want := range map[string]bool{"a": true, "b": true, "nobody": false, "": false} {
			b.do(func(ctx context.Context, c *clerk) error {
				existed, err := c.Queue().Cancel(ctx, id)
				if existed != want {
					t.Errorf("%q: %t", id, existed)
				}
				twice, err2 := c.Queue().Cancel(ctx, id)
				if twice {
					t.Errorf("%q: twice", id)
				}
				return errors.Join(err, err2)
			})
		}
		if got := b.queued(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("queued: %q", got)
		}
		b.wrote("a begins 1") // c waits for it nevertheless
		b.rest()
		b.wrote("a begins 1", "c")
		b.told("queue:dead")
		b.do(func(ctx context.Context, c *clerk) error { return c.empty(ctx) })
		// An item that was removed while it ran does not run again in another incarnation, nor if its id is
		// enqueued again by then.
		enqueue(b, work, task{Name: "d", Takes: time.Minute}, called("d"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *clerk) error {
			_, err := c.Queue().Cancel(ctx, "d")
			return err
		})
		b.Crash()
		b.rest()
		b.wrote("a begins 1", "c", "d begins 1")
		b.do(func(ctx context.Context, c *clerk) error { return c.empty(ctx) })
	})
}

func TestDequeuedItemIsNoDeadLetter(t *testing.T) {
	withClerkOf(t, dohost.Options{}, &clerkHandlers{Options: agent.Options{MaxInterruptions: 1}}, func(t *testing.T, b *bench) {
		enqueue(b, work, task{Name: "a", Takes: time.Minute}, called("a"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *clerk) error {
			_, err := c.Queue().Cancel(ctx, "a")
			return err
		})
		b.Crash()
		b.rest()
		b.do(func(ctx context.Context, c *clerk) error { return c.empty(ctx) })
	})
}

// TestQueueIsDrainedAfterACrash sends the agent no request during recovery.
func TestQueueIsDrainedAfterACrash(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		for n := range 3 {
			enqueue(b, work, task{Name: fmt.Sprint(n), Takes: 10 * time.Second}, nil)
		}
		b.Advance(15 * time.Second)
		b.Crash()
		b.Advance(time.Second)
		if err := b.Restart(); err != nil {
			t.Fatal(err)
		}
		b.rest()
		b.do(func(ctx context.Context, c *clerk) error {
			lines, err := c.lines(ctx)
			var ends []string
			for _, l := range lines {
				if strings.Contains(l, "ends") {
					ends = append(ends, l[:1])
				}
			}
			if !slices.Equal(ends, []string{"0", "1", "2"}) {
				t.Errorf("%q", lines)
			}
			return errors.Join(err, c.empty(ctx))
		})
	})
}

func TestQueueIsNotBlockedByPoisonItem(t *testing.T) {
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		enqueue(b, boom, "boom", called("boom"))
		once := schedule(b, agent.After(0), boom, "a schedule", nil) // ends the queue's runs too
		enqueue(b, note, "good", nil)
		b.rest()
		b.wrote("good")
		if got := b.dead(); !slices.Equal(got, []string{once, "boom"}) {
			t.Errorf("dead: %q", got)
		}
		cutOff := " callback=boom err=agent: the end of the incarnation interrupted every attempt"
		b.told("queue:dead", "queue:dead"+cutOff+" depth=2")
		b.told("schedule:dead", "schedule:dead"+cutOff+" depth=1")
		b.told("schedule:error")
	})
}

func TestQueueItemWithoutCallbackIsADeadLetter(t *testing.T) {
	withClerk(t, dohost.Options{Grace: -1}, func(t *testing.T, b *bench) {
		enqueue(b, work, task{Name: "a", Takes: time.Minute, Only: true}, nil)
		enqueue(b, gone, "gone", called("gone"))
		enqueue(b, note, "good", nil)
		if err := b.Restart(clerkClass(b.o, nil)); err != nil {
			t.Fatal(err)
		}
		b.rest()
		b.wrote("a begins 1", "a begins 2", "a ends 2", "good")
		if got := b.dead(); !slices.Equal(got, []string{"gone"}) {
			t.Errorf("dead: %q", got)
		}
	}, agent.OnSchedule(gone, (*clerk).note))
}

// TestJobOutcomeThatDoesNotFitIsWrittenLater has a callback that leaves no room in its batch, one with an error of
// that size, and one that deletes all rows.
func TestJobOutcomeThatDoesNotFitIsWrittenLater(t *testing.T) {
	const (
		full agent.Callback[int]    = "full"
		long agent.Callback[int]    = "long"
		wipe agent.Callback[string] = "wipe"
	)
	withClerk(t, dohost.Options{}, func(t *testing.T, b *bench) {
		schedule(b, agent.After(0), full, 0, nil)
		enqueue(b, full, 0, nil)
		enqueue(b, long, 0, called("long"))
		b.rest()
		b.told("schedule:run", "schedule:run callback=full")
		b.told("queue:run", "queue:run callback=full behind=1")
		b.do(func(ctx context.Context, c *clerk) error {
			all, err := c.DeadLetters().List(ctx, 0)
			if len(all) != 1 || all[0].Error != strings.Repeat("é", 2048) {
				t.Errorf("%d dead letters", len(all))
			}
			_, err2 := c.DeadLetters().Delete(ctx, "long")
			return errors.Join(err, err2, c.empty(ctx))
		})
		schedule(b, agent.Every(time.Hour), wipe, "schedule", nil)
		enqueue(b, wipe, "queue", nil)
		b.rest()
		b.do(func(ctx context.Context, c *clerk) error { return c.empty(ctx) })
	}, agent.OnSchedule(full, func(c *clerk, ctx context.Context, _ int) error {
		for n, size := 0, 1<<20; size > 0; n++ {
			if err := dohost.Put(ctx, c.Storage(), fmt.Sprint("full", n), make([]byte, size)); err != nil {
				size /= 2
			}
		}
		return nil
	}), agent.OnSchedule(long, func(*clerk, context.Context, int) error {
		return errors.New(strings.Repeat("é", 3<<20))
	}), agent.OnSchedule(wipe, func(c *clerk, ctx context.Context, _ string) error {
		return c.Storage().DeleteAll(ctx)
	}))
}
