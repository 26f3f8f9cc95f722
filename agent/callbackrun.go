package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// Callback is the name of a method that an agent calls with a payload of type P, from its schedules
// ([Schedule]) and its queue ([Enqueue]). It should be a constant. Rows store it, so it must not change while
// such rows exist.
type Callback[P any] string

// callback is a registered method.
type callback struct {
	payload reflect.Type
	call    func(self any, ctx context.Context, payload json.RawMessage) error
}

// OnSchedule registers the method of a callback. It runs as a separate event. Its writes up to its first Await
// are one batch; its writes after its last Await are one batch with the end of its row. So a method without
// an Await takes effect exactly once, any other at least once.
//
// After an error it runs again as the row's [dohost.RetryPolicy] allows; its writes stay. A panic ends the
// incarnation, as everywhere, and the next incarnation starts the row again: see Options.MaxInterruptions.
func OnSchedule[O, P any](cb Callback[P], m func(*O, context.Context, P) error) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		_, taken := c.callbacks[string(cb)]
		switch {
		case cb == "" || len(cb) > maxName:
			c.mistake("OnSchedule of %.40q: want a name of 1 to %d bytes", string(cb), maxName)
		case m == nil:
			c.mistake("OnSchedule of %q without a method", string(cb))
		case taken:
			c.mistake("a second OnSchedule of %q", string(cb))
		}
		if c.callbacks == nil {
			c.callbacks = map[string]callback{}
		}
		call := func(self any, ctx context.Context, raw json.RawMessage) error {
			var p P
			if err := json.Unmarshal(raw, &p); err != nil {
				return &permanentError{fmt.Errorf("agent: the payload does not decode into %T: %w", p, err)}
			}
			return m(self.(*O), ctx, p)
		}
		c.callbacks[string(cb)] = callback{reflect.TypeFor[P](), call}
	}}
}

const (
	// maxPayload bounds payloads, in bytes: a row takes nearly 2 MiB.
	maxPayload = 2<<20 - 4<<10
	// maxStarted bounds the rows that one alarm starts.
	maxStarted = 100
	// recheck is the delay of the alarm while a row runs: if the incarnation has ended by then, the alarm wakes
	// the next one.
	recheck = 30 * time.Second
	// overloadPause is the delay before the next attempt to start rows after the task limit was reached.
	overloadPause = time.Second
)

// permanentError is an error that a retry cannot fix.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// errInterrupted is the error of a row if the end of an incarnation cut off every start.
var errInterrupted = errors.New("agent: the end of the incarnation interrupted every attempt")

// errSuperseded ends the attempts of a run if its outcome no longer counts.
var errSuperseded = errors.New("agent: superseded")

// payloadRow is a payload. It is separate from the row that uses it, since that is written with every start and
// end. Each schedule, queue item and dead letter has one: see findJobs.
type payloadRow struct {
	Key  string
	JSON []byte
}

var payloads = dohost.Collection[payloadRow]{
	Name: "dohost.payloads",
	Key:  func(p payloadRow) string { return p.Key },
}

// payload returns a payload, or nil if there is none.
func (c *core) payload(ctx context.Context, key string) (json.RawMessage, error) {
	row, _, err := payloads.Get(ctx, c.store(), key)
	return row.Value.JSON, err
}

// encodePayload returns the payload as JSON, if the class has the callback.
func encodePayload[P any](c *core, cb Callback[P], payload P) (json.RawMessage, error) {
	known, ok := c.class.callbacks[string(cb)]
	if !ok {
		return nil, fmt.Errorf("agent: callback %q is not registered: list it in Bind, with OnSchedule", string(cb))
	}
	if t := reflect.TypeFor[P](); t != known.payload {
		return nil, fmt.Errorf("agent: callback %q takes a payload of type %v, not %v", string(cb), known.payload, t)
	}
	raw, err := marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("agent: the payload for %q is not JSON: %w", string(cb), err)
	}
	if len(raw) > maxPayload {
		return nil, fmt.Errorf("agent: the payload for %q: %w", string(cb),
			&dohost.LimitError{What: "payload", Size: len(raw), Limit: maxPayload})
	}
	return raw, nil
}

// jobsState is the state of an incarnation's schedules and queue.
type jobsState struct {
	notUntil time.Time // the end of a pause after the task limit was reached
	checked  bool      // findJobs has run
	none     bool      // there is neither a schedule nor an item: see findJobs
}

// findJobs reads, once in an incarnation, whether there are schedules or items at all: most agents have none.
// Each has a payload, so without payloads there is neither. ctx must not be in a Transaction, which may delete
// rows and be rolled back. findJobs runs its own, which is refused while abandoned code has another one open.
func (c *core) findJobs(ctx context.Context) error {
	if c.jobs.checked {
		return nil
	}
	c.jobs.checked = true
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		rows, err := payloads.List(ctx, c.store(), &dohost.Query[payloadRow]{Limit: 1})
		c.jobs.none = err == nil && len(rows) == 0
		return err
	})
}

// begin starts a task. If the task limit is reached, begin returns false, and no row is started for
// overloadPause.
func (c *core) begin(ctx context.Context, name string, now time.Time, task func(context.Context) error) (bool, error) {
	err := c.obj.Go(ctx, name, task)
	if errors.Is(err, dohost.ErrOverloaded) {
		c.jobs.notUntil = now.Add(overloadPause)
		return false, nil
	}
	return err == nil, err
}

// earliestStart returns the time to start due rows: now, or the end of a pause.
func (c *core) earliestStart(now time.Time) time.Time {
	if c.jobs.notUntil.After(now) {
		return c.jobs.notUntil
	}
	return now
}

// attempt runs a callback until it succeeds, its policy gives up, or its outcome no longer counts. It returns
// the outcome.
func (c *core) attempt(ctx context.Context, name, key string, b backoff, wanted func(context.Context) bool) error {
	cb, ok := c.class.callbacks[name]
	if !ok {
		return fmt.Errorf("agent: callback %q is no longer registered", name)
	}
	raw, err := c.payload(ctx, key)
	if err != nil {
		return err
	}
	first := true
	policy := b.policy(func(err error, _ int) bool {
		_, permanent := errors.AsType[*permanentError](err)
		return !permanent && !errors.Is(err, errSuperseded)
	})
	return dohost.Retry(ctx, policy, func(ctx context.Context) error {
		if !first && !wanted(ctx) {
			return errSuperseded
		}
		first = false
		return cb.call(c.self, ctx, raw)
	})
}

// recordRun writes a run's outcome in the last batch of its callback. If the batch or the disk is full, it
// tries again later; the row does not stay running.
func (c *core) recordRun(ctx context.Context, write func(context.Context) error) error {
	for {
		err := c.update(ctx, write)
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.reportError(ctx, "schedule", err)
		if err := dohost.Sleep(ctx, overloadPause); err != nil {
			return err
		}
	}
}

// jobsWakeup returns when the first schedule or queue item is due.
func (c *core) jobsWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	if c.jobs.none {
		return wakeup{}, nil
	}
	schedules, err := c.schedulesWakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	queue, err := c.queueWakeup(ctx, now)
	return earliest(schedules, queue), err
}

// startJobs starts due rows.
func (c *core) startJobs(ctx context.Context, now time.Time) error {
	if err := c.findJobs(ctx); err != nil || c.jobs.none {
		return err
	}
	suspects, err := c.startSchedules(ctx, now)
	if err != nil {
		return err
	}
	if err := c.startQueue(ctx, now); err != nil {
		return err
	}
	return c.startCrashLoopSuspect(ctx, now, suspects)
}

// startCrashLoopSuspect starts the suspect with the fewest starts, if no suspect runs and all other rows have started.
// The queue's suspect comes last.
func (c *core) startCrashLoopSuspect(ctx context.Context, now time.Time, suspects []scheduleRow) error {
	it, queued, err := c.head(ctx)
	if err != nil {
		return err
	}
	queued = queued && it.Suspect(c.incarnation, c.queuePolicy())
	if !queued && len(suspects) == 0 || c.earliestStart(now).After(now) {
		return nil
	}
	if busy, err := c.crashLoopSuspectRuns(ctx); err != nil || busy {
		return err
	}
	if len(suspects) > 0 {
		j := slices.MinFunc(suspects, func(a, b scheduleRow) int { return a.Stalls - b.Stalls })
		_, err := c.startSchedule(ctx, j, now)
		return err
	}
	if it.Item, _, err = c.stepItem(it.ID, it.Item, work.Event{Kind: work.Due, Alone: true}, c.queuePolicy(), now); err != nil {
		return err
	}
	return c.startItem(ctx, it, now)
}

// crashLoopSuspectRuns reports whether a suspect runs.
func (c *core) crashLoopSuspectRuns(ctx context.Context) (bool, error) {
	it, ok, err := c.head(ctx)
	if err != nil || ok && it.Isolated(c.incarnation, c.queuePolicy()) {
		return ok, err
	}
	rows, err := scheduleRows.List(ctx, c.store(), &dohost.Query[scheduleRow]{
		Index: byIncarnation, Equal: dohost.KeyOf(c.incarnation), Limit: 1, Where: func(j scheduleRow) bool { return j.Isolated(c.incarnation, c.schedulePolicy(&j)) },
	})
	return len(rows) > 0, err
}

// restartTime returns when to start rows that an earlier incarnation left running: immediately or, while a
// suspect runs, after recheck.
func (c *core) restartTime(ctx context.Context, now time.Time) (time.Time, error) {
	busy, err := c.crashLoopSuspectRuns(ctx)
	if busy && !c.earliestStart(now).After(now) {
		return now.Add(recheck), err
	}
	return c.earliestStart(now), err
}

// wakeJobs sets the alarm: immediately if the previous incarnation left a run unfinished, else for
// the next due job if no alarm is set, because an alarm that has failed seven times is parked.
func (c *core) wakeJobs(ctx context.Context) error {
	if len(c.class.callbacks) == 0 || c.jobs.none {
		return nil // the wake of an agent without jobs reads nothing
	}
	interrupted, err := c.hasInterruptedSchedules(ctx)
	if err != nil {
		return err
	}
	if !interrupted {
		head, ok, err := c.head(ctx)
		if err != nil {
			return err
		}
		interrupted = ok && head.Owner != ""
	}
	if !interrupted {
		if _, set, err := c.obj.GetAlarm(ctx); err != nil || set {
			return err
		}
		if err := c.findJobs(ctx); err != nil || c.jobs.none {
			return err
		}
	}
	return c.rearm(ctx)
}
