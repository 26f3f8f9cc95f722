package agent_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

func (b *callbackTest) queuedIDs() (ids []string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) error {
		all, err := c.Queue().List(ctx, nil)
		for _, q := range all {
			ids = append(ids, q.ID)
			if got, ok, err := c.Queue().Get(ctx, q.ID); err != nil || !ok || !reflect.DeepEqual(got, q) {
				b.t.Errorf("Get returns %+v, %t, %v; List has %+v", got, ok, err, q)
			}
		}
		if got, ok, err2 := c.Queue().Get(ctx, "no such item"); ok || err2 != nil {
			b.t.Error(got, err2)
		}
		return err
	})
	return ids
}

func (b *callbackTest) deadLetterIDs() (ids []string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) error {
		all, err := c.DeadLetters().List(ctx, 0)
		for _, d := range all {
			ids = append(ids, d.ID)
			if got, ok, err := c.DeadLetters().Get(ctx, d.ID); err != nil || !ok || !reflect.DeepEqual(got, d) {
				b.t.Errorf("Get returns %+v, %t, %v; List has %+v", got, ok, err, d)
			}
		}
		if got, ok, err2 := c.DeadLetters().Get(ctx, "no such letter"); ok || err2 != nil {
			b.t.Error(got, err2)
		}
		return err
	})
	return ids
}

func withID(id string) *agent.QueueOptions { return &agent.QueueOptions{ID: id} }

func TestQueueRunsOneAtATimeInOrder(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		b.do(func(ctx context.Context, c *callbackAgent) error {
			for n := range 3 {
				if _, err := agent.Enqueue(ctx, c, work, task{Name: fmt.Sprint(n), Takes: 40 * time.Second}, nil); err != nil {
					return err
				}
			}
			return c.write(ctx, "enqueued") // it runs later, though it could start now
		})
		enqueue(b, appendLine, "last", withID("last"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			all, err := c.Queue().List(ctx, &agent.QueueQuery{Callback: "work", Limit: 2})
			if len(all) != 2 || !all[0].Running || all[1].Running || !strings.HasPrefix(string(all[1].Payload), `{"Name":"1",`) {
				t.Errorf("%+v", all)
			}
			return err
		})
		b.waitIdle()
		b.wantLines("enqueued", "0 begins 1", "0 ends 1", "1 begins 1", "1 ends 1", "2 begins 1", "2 ends 1", "last")
		ran := "queue:run callback=work waiting="
		b.wantReports("queue", ran+"3", ran+"2", ran+"1", "queue:run callback=note waiting=0")
		if left := b.queuedIDs(); left != nil {
			t.Errorf("left: %q", left)
		}
	})
}

func TestQueueDoesNotWaitForTheAlarm(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, appendLine, "a", nil)
		enqueue(b, appendLine, "b", nil)
		b.waitIdle()
		b.wantLines("a", "b")
		if strings.Contains(b.Log(), " alarm, ") {
			t.Error("the alarm was delivered")
		}
	})
}

func TestQueueStartsLaterWhenOverloaded(t *testing.T) {
	runCallbackTest(t, dohost.Options{MaxEvents: 2}, func(t *testing.T, b *callbackTest) {
		b.do(func(ctx context.Context, c *callbackAgent) error {
			pause := func(ctx context.Context) error { return dohost.Sleep(ctx, 10*time.Second) }
			for range 2 {
				if err := c.Object().Go(ctx, "pause", pause); err != nil {
					return err
				}
			}
			_, err := agent.Enqueue(ctx, c, appendLine, "a", nil)
			return err
		})
		b.Advance(12 * time.Second)
		b.wantLines("a")
	})
}

func TestQueueItemThatFailsIsADeadLetter(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "a", Fails: 2}, withID("a"))
		enqueue(b, work, task{Name: "b", Fails: 3}, withID("b"))
		enqueue(b, work, task{Name: "c", Fails: 1}, &agent.QueueOptions{ID: "c", Retry: dohost.RetryPolicy{MaxAttempts: 1}})
		enqueue(b, appendLine, "d", nil)
		b.waitIdle()
		b.wantLines("a begins 1", "a begins 2", "a begins 3", "a ends 3",
			"b begins 1", "b begins 2", "b begins 3", "c begins 1", "d")
		b.wantReports("queue:dead", "queue:dead callback=work err=b fails depth=1", "queue:dead callback=work err=c fails depth=2")
		b.do(func(ctx context.Context, c *callbackAgent) error {
			all, err := c.DeadLetters().List(ctx, 1)
			if len(all) != 1 || all[0].ID != "b" || all[0].Error != "b fails" ||
				!strings.Contains(string(all[0].Payload), `"Name":"b"`) {
				t.Errorf("%+v", all)
			}
			return err
		})
		b.do(func(ctx context.Context, c *callbackAgent) error {
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
		b.waitIdle()
		if left := b.deadLetterIDs(); left != nil {
			t.Errorf("left: %q", left)
		}
		b.wantReports("queue:run callback=work", "queue:run callback=work waiting=3", "queue:run callback=work waiting=0")
	})
}

func TestDeadLetterOfAnIDQueuedAgain(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		fail := func(n int) {
			enqueue(b, work, task{Name: fmt.Sprint(n), Takes: time.Second, Fails: 9},
				&agent.QueueOptions{ID: "a", Retry: dohost.RetryPolicy{MaxAttempts: 1}})
		}
		fail(1)
		b.waitIdle()
		fail(2)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			existed, err := c.DeadLetters().Retry(ctx, "a")
			if existed || err == nil || !strings.Contains(err.Error(), `an item with the id "a" is already in the queue`) {
				t.Error(existed, err)
			}
			return nil
		})
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error {
			all, err := c.DeadLetters().List(ctx, 0)
			if len(all) != 1 || all[0].Error != "2 fails" || !strings.Contains(string(all[0].Payload), `"2"`) {
				t.Errorf("%+v", all)
			}
			_, err2 := c.DeadLetters().Delete(ctx, "a")
			return errors.Join(err, err2, c.checkNoRows(ctx))
		})
	})
}

// checkNoRows returns an error if jobs have left rows.
func (c *callbackAgent) checkNoRows(ctx context.Context) error {
	type row struct{}
	for _, name := range []string{"dohost.schedules", "dohost.queue", "dohost.dead", "dohost.payloads"} {
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
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "first", Takes: 10 * time.Second, Fails: 9}, withID("a"))
		enqueue(b, appendLine, "old", withID("b"))
		enqueue(b, appendLine, "c", withID("c"))
		b.Advance(time.Second)
		enqueue(b, appendLine, "new", withID("b"))
		enqueue(b, appendLine, "second", withID("a")) // the first runs, and its failure will be ignored
		if got := b.queuedIDs(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("queued: %q", got)
		}
		b.Advance(time.Second)
		b.wantLines("first begins 1") // one at a time
		b.waitIdle()
		b.wantLines("first begins 1", "second", "new", "c")
		b.wantReports("queue:dead")
		if got := len(b.log.reportsWith("queue:run")); got != 3 {
			t.Errorf("%d runs counted", got)
		}
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	})
}

func TestQueueCancel(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "a", Takes: 10 * time.Second, Fails: 9}, withID("a"))
		enqueue(b, appendLine, "b", withID("b"))
		enqueue(b, appendLine, "c", withID("c"))
		b.Advance(time.Second)
		for id, want := range map[string]bool{"a": true, "b": true, "nobody": false, "": false} {
			b.do(func(ctx context.Context, c *callbackAgent) error {
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
		if got := b.queuedIDs(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("queued: %q", got)
		}
		b.wantLines("a begins 1") // c waits for it nevertheless
		b.waitIdle()
		b.wantLines("a begins 1", "c")
		b.wantReports("queue:dead")
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
		// An item that was removed while it ran does not run again in another incarnation, nor if its id is
		// enqueued again by then.
		enqueue(b, work, task{Name: "d", Takes: time.Minute}, withID("d"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := c.Queue().Cancel(ctx, "d")
			return err
		})
		b.Crash()
		b.waitIdle()
		b.wantLines("a begins 1", "c", "d begins 1")
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	})
}

func TestQueueItemThatIsCancelledIsNoDeadLetter(t *testing.T) {
	runCallbackTestWith(t, dohost.Options{}, &callbackHandlers{Options: agent.Options{MaxInterruptions: 1}}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "a", Takes: time.Minute}, withID("a"))
		b.Advance(time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := c.Queue().Cancel(ctx, "a")
			return err
		})
		b.Crash()
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	})
}

// TestQueueItemThatIsReplacedIsNoDeadLetter replaces an item during its last start: the starts of the old payload do not count for
// the new one.
func TestQueueItemThatIsReplacedIsNoDeadLetter(t *testing.T) {
	runCallbackTestWith(t, dohost.Options{}, &callbackHandlers{Options: agent.Options{MaxInterruptions: 1}}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "a", Takes: time.Minute}, withID("x"))
		b.Advance(time.Second)
		enqueue(b, work, task{Name: "b"}, withID("x"))
		b.Crash()
		b.waitIdle()
		b.wantLines("a begins 1", "b begins 1", "b ends 1")
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	})
}

// TestQueueItemChangedBeforeItsTaskBegins cancels and replaces items in the event that enqueues them: the queue has
// started their runs, but not the callbacks.
func TestQueueItemChangedBeforeItsTaskBegins(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := agent.Enqueue(ctx, c, appendLine, "cancelled", withID("a"))
			existed, err2 := c.Queue().Cancel(ctx, "a")
			if !existed {
				t.Error("there is no item to cancel")
			}
			return errors.Join(err, err2)
		})
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := agent.Enqueue(ctx, c, appendLine, "old", withID("b"))
			_, err2 := agent.Enqueue(ctx, c, appendLine, "new", withID("b"))
			return errors.Join(err, err2)
		})
		b.waitIdle()
		b.wantLines("new")
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	})
}

// TestQueueIsDrainedAfterACrash sends the agent no request during recovery.
func TestQueueIsDrainedAfterACrash(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		for n := range 3 {
			enqueue(b, work, task{Name: fmt.Sprint(n), Takes: 10 * time.Second}, nil)
		}
		b.Advance(15 * time.Second)
		b.Crash()
		b.Advance(time.Second)
		if err := b.Restart(); err != nil {
			t.Fatal(err)
		}
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error {
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
			return errors.Join(err, c.checkNoRows(ctx))
		})
	})
}

func TestQueueIsNotBlockedByPoisonItem(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		enqueue(b, panics, "boom", withID("boom"))
		once := schedule(b, agent.After(0), panics, "a schedule", nil) // ends the queue's runs too
		enqueue(b, appendLine, "good", nil)
		b.waitIdle()
		b.wantLines("good")
		if got := b.deadLetterIDs(); !slices.Equal(got, []string{once, "boom"}) {
			t.Errorf("dead: %q", got)
		}
		cutOff := " callback=boom err=agent: the end of the incarnation interrupted every attempt"
		b.wantReports("queue:dead", "queue:dead"+cutOff+" depth=2")
		b.wantReports("schedule:dead", "schedule:dead"+cutOff+" depth=1")
		b.wantReports("schedule:error")
	})
}

func TestQueueItemWithoutCallbackIsADeadLetter(t *testing.T) {
	runCallbackTest(t, dohost.Options{Grace: -1}, func(t *testing.T, b *callbackTest) {
		enqueue(b, work, task{Name: "a", Takes: time.Minute, Only: true}, nil)
		enqueue(b, unregistered, "gone", withID("gone"))
		enqueue(b, appendLine, "good", nil)
		if err := b.Restart(callbackClass(b.log, nil)); err != nil {
			t.Fatal(err)
		}
		b.waitIdle()
		b.wantLines("a begins 1", "a begins 2", "a ends 2", "good")
		if got := b.deadLetterIDs(); !slices.Equal(got, []string{"gone"}) {
			t.Errorf("dead: %q", got)
		}
	}, agent.OnSchedule(unregistered, (*callbackAgent).appendLine))
}

// TestJobOutcomeThatDoesNotFitIsWrittenLater has a callback that leaves no room in its batch, one with an error of
// that size, and one that deletes all rows.
func TestJobOutcomeThatDoesNotFitIsWrittenLater(t *testing.T) {
	const (
		full agent.Callback[int]    = "full"
		long agent.Callback[int]    = "long"
		wipe agent.Callback[string] = "wipe"
	)
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.After(0), full, 0, nil)
		enqueue(b, full, 0, nil)
		enqueue(b, long, 0, withID("long"))
		b.waitIdle()
		b.wantReports("schedule:run", "schedule:run callback=full")
		b.wantReports("queue:run", "queue:run callback=full waiting=1")
		b.do(func(ctx context.Context, c *callbackAgent) error {
			all, err := c.DeadLetters().List(ctx, 0)
			if len(all) != 1 || all[0].Error != strings.Repeat("é", 2048) {
				t.Errorf("%d dead letters", len(all))
			}
			_, err2 := c.DeadLetters().Delete(ctx, "long")
			return errors.Join(err, err2, c.checkNoRows(ctx))
		})
		schedule(b, agent.Every(time.Hour), wipe, "schedule", nil)
		enqueue(b, wipe, "queue", nil)
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error { return c.checkNoRows(ctx) })
	}, agent.OnSchedule(full, func(c *callbackAgent, ctx context.Context, _ int) error {
		for n, size := 0, 1<<20; size > 0; n++ {
			if err := dohost.Put(ctx, c.Storage(), fmt.Sprint("full", n), make([]byte, size)); err != nil {
				size /= 2
			}
		}
		return nil
	}), agent.OnSchedule(long, func(*callbackAgent, context.Context, int) error {
		return errors.New(strings.Repeat("é", 3<<20))
	}), agent.OnSchedule(wipe, func(c *callbackAgent, ctx context.Context, _ string) error {
		return c.Storage().DeleteAll(ctx)
	}))
}
