package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

const (
	// maxStarted bounds the rows that one alarm starts.
	maxStarted = 100
	// recheck is the delay of the alarm while a row runs: if the incarnation has ended by then, the alarm wakes
	// the next one.
	recheck = 30 * time.Second
	// overloadPause is the delay before the next attempt to start rows after the task limit was reached, or to write an outcome
	// after the disk was full.
	overloadPause = time.Second
)

// errInterrupted is the error of a row if the end of an incarnation cut off every start.
var errInterrupted = errors.New("agent: the end of the incarnation interrupted every attempt")

// errSuperseded ends the attempts of a run if its outcome no longer counts.
var errSuperseded = errors.New("agent: superseded")

// callbackPolicy returns the policy of a run of a callback. Its retries after errors are part of one run, so a run that
// returns an error has failed.
func (js *jobs) callbackPolicy() work.Policy {
	return work.Policy{Known: true, Resumable: true, MaxRetries: js.class.options.MaxInterruptions - 1, Isolate: 1}
}

// schedulePolicy returns the policy of a schedule. A recurring schedule skips a run that was interrupted too often.
func (js *jobs) schedulePolicy(j *scheduleRow) *work.Policy {
	p := js.callbackPolicy()
	p.GiveUp = !j.Kind.recurs()
	return &p
}

// queuePolicy returns the policy of the items of the queue.
func (js *jobs) queuePolicy() *work.Policy {
	p := js.callbackPolicy()
	p.GiveUp, p.KeepPlace = true, true
	return &p
}

// jobs runs the callbacks of schedules and of the queue, and keeps the dead letters. The row of a run names the
// incarnation that started it, so the next incarnation starts the run again, up to Options.MaxInterruptions times. Runs
// that may have ended their process start one at a time, after all others. Only the head of the queue runs. Each
// schedule, queue item and dead letter has one payload.
type jobs struct {
	*incarnation
	rows *rows

	checked bool // find has run
	none    bool // there is neither a schedule nor an item: see find
}

// find reads, once in an incarnation, whether there are schedules or items at all: most agents have none.
// Each has a payload, so without payloads there is neither. ctx must not be in a Transaction, which may delete
// rows and be rolled back. find runs its own, which is refused while abandoned code has another one open.
func (js *jobs) find(ctx context.Context) error {
	if js.checked {
		return nil
	}
	js.checked = true
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		_, found, err := first(ctx, js.rows, &payloads, dohost.Query[payloadRow]{})
		js.none = err == nil && !found
		return err
	})
}

// attempt runs a callback until it succeeds, its policy gives up, or its outcome no longer counts. It returns
// the outcome. Each attempt gets a position of its own.
func (js *jobs) attempt(
	ctx context.Context, name, key string, b storedRetry, position func() *dohost.WorkPosition, wanted func(context.Context) bool,
) error {
	cb, ok := js.class.callbacks[name]
	if !ok {
		return fmt.Errorf("agent: callback %q is no longer registered", name)
	}
	raw, err := js.payload(ctx, key)
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
		return cb.call(js.self, position().Context(ctx), raw)
	})
}

// wakeup returns when the first schedule or queue item is due.
func (js *jobs) wakeup(ctx context.Context, now time.Time) (wakeup, error) {
	if js.none {
		return wakeup{}, nil
	}
	schedules, err := js.schedulesWakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	queue, err := js.queueWakeup(ctx, now)
	return earliest(schedules, queue), err
}

// start starts due rows.
func (js *jobs) start(ctx context.Context, now time.Time) error {
	if err := js.find(ctx); err != nil || js.none {
		return err
	}
	suspects, err := js.startSchedules(ctx, now)
	if err != nil {
		return err
	}
	if err := js.startQueue(ctx, now); err != nil {
		return err
	}
	return js.startCrashLoopSuspect(ctx, now, suspects)
}

// startCrashLoopSuspect starts the suspect with the fewest starts, if no suspect runs and all other rows have started.
// The queue's suspect comes last.
func (js *jobs) startCrashLoopSuspect(ctx context.Context, now time.Time, suspects []scheduleRow) error {
	it, queued, err := js.head(ctx)
	if err != nil {
		return err
	}
	queued = queued && it.Suspect(js.owner, js.queuePolicy())
	if !queued && len(suspects) == 0 || js.earliestStart(now).After(now) {
		return nil
	}
	if busy, err := js.crashLoopSuspectRuns(ctx); err != nil || busy {
		return err
	}
	if len(suspects) > 0 {
		_, err := js.startSchedule(ctx, nextSuspect(suspects, func(j scheduleRow) int { return j.Stalls }), now)
		return err
	}
	if it.Item, _, err = js.step(it.ID, it.Item, work.Event{Kind: work.Due, Alone: true}, js.queuePolicy(), now); err != nil {
		return err
	}
	return js.startItem(ctx, it, now)
}

// nextSuspect returns the suspect that starts first: the one with the fewest stalls.
func nextSuspect[T any](suspects []T, stalls func(T) int) T {
	return slices.MinFunc(suspects, func(a, b T) int { return stalls(a) - stalls(b) })
}

// crashLoopSuspectRuns reports whether a suspect runs.
func (js *jobs) crashLoopSuspectRuns(ctx context.Context) (bool, error) {
	it, ok, err := js.head(ctx)
	if err != nil || ok && it.Isolated(js.owner, js.queuePolicy()) {
		return ok, err
	}
	_, ok, err = first(ctx, js.rows, &scheduleRows, dohost.Query[scheduleRow]{
		Index: byIncarnation, Equal: dohost.KeyOf(js.owner),
		Where: func(j scheduleRow) bool { return j.Isolated(js.owner, js.schedulePolicy(&j)) },
	})
	return ok, err
}

// restartTime returns when to start rows that an earlier incarnation left running: immediately or, while a
// suspect runs, after recheck.
func (js *jobs) restartTime(ctx context.Context, now time.Time) (time.Time, error) {
	busy, err := js.crashLoopSuspectRuns(ctx)
	if busy && !js.earliestStart(now).After(now) {
		return now.Add(recheck), err
	}
	return js.earliestStart(now), err
}

// alarmIsLate reports, when the agent wakes, whether the previous incarnation left a run unfinished, or there are jobs and no alarm is set:
// an alarm that has failed seven times is parked.
func (js *jobs) alarmIsLate(ctx context.Context) (bool, error) {
	if len(js.class.callbacks) == 0 || js.none {
		return false, nil // the wake of an agent without jobs reads nothing
	}
	interrupted, err := js.hasInterruptedSchedules(ctx)
	if err != nil || interrupted {
		return interrupted, err
	}
	head, ok, err := js.head(ctx)
	if err != nil || ok && head.Owner != "" {
		return err == nil, err
	}
	if _, set, err := js.obj.GetAlarm(ctx); err != nil || set {
		return false, err
	}
	err = js.find(ctx)
	return err == nil && !js.none, err
}
