package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// duplicateThreshold is the number of due rows of one callback, each to run once, that triggers a warning: the agent
// probably schedules without [IdempotenceOn] whenever it starts.
const duplicateThreshold = 10

// schedulesWakeup returns when the first schedule is due or an interval counts as stuck. While a schedule runs there is
// always a time: if the incarnation ends, the next one has to start the run again.
func (js *jobs) schedulesWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	var due wakeup
	j, ok, err := first(ctx, js.rows, &scheduleRows, dohost.Query[scheduleRow]{Index: byCheck, Where: js.notInterrupted})
	if err != nil {
		return wakeup{}, err
	}
	if ok {
		due.at = j.Due
		if j.Owner != "" {
			due.at = j.StuckAt
		}
		if !due.at.After(now) {
			due.at = js.earliestStart(now)
		}
	}
	if _, ok, err = first(ctx, js.rows, &scheduleRows, dohost.Query[scheduleRow]{Index: byIncarnation}); err != nil || !ok {
		return due, err
	}
	interrupted, err := js.hasInterruptedSchedules(ctx)
	if err != nil {
		return wakeup{}, err
	}
	running := wakeup{now.Add(recheck), true}
	if interrupted {
		running.at, err = js.restartTime(ctx, now)
	}
	return earliest(due, running), err
}

// hasInterruptedSchedules reports whether there are rows that an earlier incarnation left running.
func (js *jobs) hasInterruptedSchedules(ctx context.Context) (bool, error) {
	for _, q := range []dohost.Query[scheduleRow]{
		{Index: byIncarnation}, // ordered by incarnation; one of them is this one
		{Index: byIncarnation, Reverse: true},
	} {
		j, ok, err := first(ctx, js.rows, &scheduleRows, q)
		if err != nil || !ok {
			return false, err
		}
		if j.Interrupted(js.owner) {
			return true, nil
		}
	}
	return false, nil
}

func (js *jobs) notInterrupted(j scheduleRow) bool { return !j.Interrupted(js.owner) }

// interruptedSchedules returns the rows that an earlier incarnation left running.
func (js *jobs) interruptedSchedules(ctx context.Context) (found []dohost.Row[scheduleRow], err error) {
	mine := dohost.KeyOf(js.owner)
	for _, q := range []dohost.Query[scheduleRow]{{Index: byIncarnation, End: mine}, {Index: byIncarnation, Start: mine.PrefixEnd()}} {
		rows, err := scheduleRows.List(ctx, js.store(), &q)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

// startSchedules starts the runs that were cut off and those that are due, up to maxStarted, and
// ends the runs that were cut off too often. If nothing else is left to start, it returns the
// suspects among those cut off.
func (js *jobs) startSchedules(ctx context.Context, now time.Time) (suspects []scheduleRow, err error) {
	interrupted, err := js.interruptedSchedules(ctx)
	if err != nil {
		return nil, err
	}
	var rows []dohost.Row[scheduleRow]
	for _, row := range interrupted {
		j := row.Value
		_, eff, err := js.step(j.ID, j.Item, work.Event{Kind: work.Due}, js.schedulePolicy(&j), now)
		switch {
		case err != nil:
			return nil, err
		case eff == work.None:
			if err := js.endExhaustedSchedule(ctx, j, now); err != nil {
				return nil, err
			}
		case eff == work.Wait:
			suspects = append(suspects, j)
		default:
			rows = append(rows, row)
		}
	}
	due, err := scheduleRows.List(ctx, js.store(), &dohost.Query[scheduleRow]{
		Index: byCheck, End: dohost.KeyOf(now).PrefixEnd(), Limit: maxStarted, Where: js.notInterrupted,
	})
	if err != nil {
		return nil, err
	}
	js.warnDuplicates(ctx, due)
	rows = append(rows, due...)
	for n, row := range rows {
		if n == maxStarted {
			return nil, nil
		}
		if begun, err := js.startSchedule(ctx, row.Value, now); err != nil || !begun {
			return nil, err
		}
	}
	return suspects, nil
}

// startSchedule starts a run, if a task is free. It starts the task before it writes the row: a task that does not
// find its run in the row does nothing.
func (js *jobs) startSchedule(ctx context.Context, j scheduleRow, now time.Time) (begun bool, err error) {
	ev := work.Event{Kind: work.Due, Alone: true}
	if j.Owner == js.owner {
		js.obj.Report(ctx, "schedule:stuck", slog.String("callback", j.Callback), slog.String("id", j.ID),
			slog.Duration("after", now.Sub(j.Started)))
		ev.Kind = work.Stuck
	}
	if j.Item, _, err = js.step(j.ID, j.Item, ev, js.schedulePolicy(&j), now); err != nil {
		return false, err
	}
	if j.Started = now; j.Kind == ScheduleInterval {
		j.StuckAt = now.Add(js.class.options.StuckAfter)
	}
	id, run := j.ID, j.Run
	begun, err = js.startTask(ctx, "schedule "+j.Callback, now, func(ctx context.Context) error { return js.runSchedule(ctx, id, run) })
	if err != nil || !begun {
		return false, err
	}
	return true, put(ctx, js.rows, &scheduleRows, &j)
}

// warnDuplicates reports callbacks with suspiciously many due rows.
func (js *jobs) warnDuplicates(ctx context.Context, rows []dohost.Row[scheduleRow]) {
	counts := map[string]int{}
	for _, row := range rows {
		if j := row.Value; !j.Kind.recurs() {
			counts[j.Callback]++
			if counts[j.Callback] == duplicateThreshold {
				js.obj.Report(ctx, "schedule:duplicate_warning", slog.String("callback", j.Callback), slog.Int("due", duplicateThreshold))
			}
		}
	}
}

// runSchedule runs a schedule.
func (js *jobs) runSchedule(ctx context.Context, id string, number uint64) error {
	running := func(ctx context.Context) (scheduleRow, bool) {
		j, ok, err := get(ctx, js.rows, &scheduleRows, id)
		return j, err == nil && ok && j.Owner == js.owner && j.Run == number
	}
	j, ok := running(ctx)
	if !ok {
		return nil // cancelled, or superseded as stuck, before it began
	}
	lag := time.Since(j.Due)
	failed := js.attempt(ctx, j.Callback, j.ID, j.Retry, j.position, func(ctx context.Context) bool {
		_, wanted := running(ctx)
		return wanted
	})
	if ctx.Err() != nil {
		return failed
	}
	counts := false
	err := js.rows.record(ctx, "schedule", func(ctx context.Context) error {
		row, ok, err := get(ctx, js.rows, &scheduleRows, id)
		if err != nil || !ok {
			return err
		}
		ev, now := work.Event{Kind: work.Returned, Run: number, Failed: failed != nil, Final: true}, time.Now()
		_, eff, err := js.step(id, row.Item, ev, js.schedulePolicy(&row), now)
		if counts = err == nil && eff != work.Refused; !counts {
			return err
		}
		return js.endSchedule(ctx, row, now)
	})
	switch {
	case err != nil || !counts:
	case failed != nil:
		js.reportScheduleError(ctx, j, failed)
	default:
		js.obj.Report(ctx, "schedule:run", slog.String("callback", j.Callback), slog.String("id", id), slog.Duration("lag", lag))
	}
	return err
}

// endSchedule writes the row of a schedule after a run that ended now.
func (js *jobs) endSchedule(ctx context.Context, j scheduleRow, now time.Time) error {
	next, stays, err := j.ended(now)
	if err != nil {
		js.reportScheduleError(ctx, j, err)
	}
	if !stays {
		return js.removeSchedule(ctx, j.ID)
	}
	return put(ctx, js.rows, &scheduleRows, &next)
}

// endExhaustedSchedule ends a run after MaxInterruptions ends of incarnations cut it off. The callback may never have
// returned, so a schedule that does not recur is kept as a dead letter; one that recurs waits for its next time.
func (js *jobs) endExhaustedSchedule(ctx context.Context, j scheduleRow, now time.Time) error {
	if j.Kind.recurs() {
		js.reportScheduleError(ctx, j, errInterrupted)
		return js.endSchedule(ctx, j, now)
	}
	letter := item{
		ID: j.ID, Callback: j.Callback, Payload: j.ID, Enqueued: j.Created, Scheduled: j.Due.UnixNano(), Retry: j.Retry,
	}
	depth, err := js.addDeadLetter(ctx, letter, now, errInterrupted)
	if err != nil {
		return err
	}
	if _, err := remove(ctx, js.rows, &scheduleRows, j.ID); err != nil { // the dead letter has its payload now
		return err
	}
	js.obj.Report(ctx, "schedule:dead", slog.String("callback", j.Callback), slog.String("id", j.ID), slog.Any("err", errInterrupted),
		slog.Int("depth", depth))
	return nil
}

func (js *jobs) reportScheduleError(ctx context.Context, j scheduleRow, err error) {
	js.report(ctx, "schedule:error", err, slog.String("callback", j.Callback), slog.String("id", j.ID))
}

// unknownZoneDelay is the delay of a cron schedule if its next time is unknown because its zone is no longer in this
// host's database.
const unknownZoneDelay = time.Hour

// ended returns the row after a run that ended now, and whether the row stays. The next time of a cron schedule
// follows both now and the due time of this run: if the clock was set back during the run, the same time does
// not run twice.
func (j scheduleRow) ended(now time.Time) (next scheduleRow, stays bool, err error) {
	j.Item, j.Started, j.StuckAt = work.Item{}, time.Time{}, time.Time{}
	switch j.Kind {
	case ScheduleInterval:
		j.Due = now.Add(j.Every)
		return j, true, nil
	case ScheduleCron:
		table, err := parseCron(j.Cron, j.Zone)
		if err != nil {
			j.Due = now.Add(unknownZoneDelay)
			return j, true, err
		}
		if now.Before(j.Due) {
			now = j.Due
		}
		j.Due = table.next(now)
		return j, !j.Due.IsZero(), nil
	}
	return j, false, nil
}
