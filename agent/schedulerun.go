package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// duplicateThreshold is the number of due rows of one callback, each to run once, that triggers a warning: the agent
// probably schedules without [Idempotent] whenever it starts.
const duplicateThreshold = 10

// schedulesWakeup returns when the first schedule is due or an interval counts as stuck. While a schedule runs there is
// always a time: if the incarnation ends, the next one has to start the run again.
func (c *core) schedulesWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	var due, running wakeup
	rows, err := scheduleRows.List(ctx, c.store(), &dohost.Query[scheduleRow]{Index: byCheck, Limit: 1, Where: c.notInterrupted})
	if err != nil {
		return wakeup{}, err
	}
	if len(rows) > 0 {
		due.at = rows[0].Value.Due
		if rows[0].Value.Owner != "" {
			due.at = rows[0].Value.StuckAt
		}
		if !due.at.After(now) {
			due.at = c.earliestStart(now)
		}
	}
	rows, err = scheduleRows.List(ctx, c.store(), &dohost.Query[scheduleRow]{Index: byIncarnation, Limit: 1})
	if err != nil {
		return wakeup{}, err
	}
	if len(rows) > 0 {
		interrupted, err := c.hasInterruptedSchedules(ctx)
		if err != nil {
			return wakeup{}, err
		}
		running = wakeup{now.Add(recheck), true}
		if interrupted {
			if running.at, err = c.restartTime(ctx, now); err != nil {
				return wakeup{}, err
			}
		}
	}
	return earliest(due, running), nil
}

// hasInterruptedSchedules reports whether there are rows that an earlier incarnation left running.
func (c *core) hasInterruptedSchedules(ctx context.Context) (bool, error) {
	for _, q := range []dohost.Query[scheduleRow]{
		{Index: byIncarnation, Limit: 1}, // ordered by incarnation; one of them is this one
		{Index: byIncarnation, Limit: 1, Reverse: true},
	} {
		rows, err := scheduleRows.List(ctx, c.store(), &q)
		if err != nil {
			return false, err
		}
		if len(rows) == 0 {
			return false, nil
		}
		if rows[0].Value.Interrupted(c.incarnation) {
			return true, nil
		}
	}
	return false, nil
}

func (c *core) notInterrupted(j scheduleRow) bool { return !j.Interrupted(c.incarnation) }

// interruptedSchedules returns the rows that an earlier incarnation left running.
func (c *core) interruptedSchedules(ctx context.Context) (found []dohost.Row[scheduleRow], err error) {
	mine := dohost.KeyOf(c.incarnation)
	for _, q := range []dohost.Query[scheduleRow]{{Index: byIncarnation, End: mine}, {Index: byIncarnation, Start: mine.PrefixEnd()}} {
		rows, err := scheduleRows.List(ctx, c.store(), &q)
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
func (c *core) startSchedules(ctx context.Context, now time.Time) (suspects []scheduleRow, err error) {
	interrupted, err := c.interruptedSchedules(ctx)
	if err != nil {
		return nil, err
	}
	var rows []dohost.Row[scheduleRow]
	for _, row := range interrupted {
		j := row.Value
		_, eff, err := c.stepItem(j.ID, j.Item, work.Event{Kind: work.Due}, c.schedulePolicy(&j), now)
		switch {
		case err != nil:
			return nil, err
		case eff == work.None:
			if err := c.endExhaustedSchedule(ctx, j, now); err != nil {
				return nil, err
			}
		case eff == work.Wait:
			suspects = append(suspects, j)
		default:
			rows = append(rows, row)
		}
	}
	due, err := scheduleRows.List(ctx, c.store(), &dohost.Query[scheduleRow]{
		Index: byCheck, End: dohost.KeyOf(now).PrefixEnd(), Limit: maxStarted, Where: c.notInterrupted,
	})
	if err != nil {
		return nil, err
	}
	c.warnDuplicates(ctx, due)
	rows = append(rows, due...)
	for n, row := range rows {
		if n == maxStarted {
			return nil, nil
		}
		if begun, err := c.startSchedule(ctx, row.Value, now); err != nil || !begun {
			return nil, err
		}
	}
	return suspects, nil
}

// startSchedule starts a run, if a task is free. It starts the task before it writes the row: a task that does not
// find its run in the row does nothing.
func (c *core) startSchedule(ctx context.Context, j scheduleRow, now time.Time) (begun bool, err error) {
	ev := work.Event{Kind: work.Due, Alone: true}
	if j.Owner == c.incarnation {
		c.obj.Report(ctx, "schedule:stuck", slog.String("callback", j.Callback), slog.String("id", j.ID),
			slog.Duration("after", now.Sub(j.Started)))
		ev.Kind = work.Stuck
	}
	if j.Item, _, err = c.stepItem(j.ID, j.Item, ev, c.schedulePolicy(&j), now); err != nil {
		return false, err
	}
	if j.Started = now; j.Kind == KindInterval {
		j.StuckAt = now.Add(c.class.options.StuckAfter)
	}
	begun, err = c.begin(ctx, "schedule "+j.Callback, now, func(ctx context.Context) error {
		return c.runSchedule(ctx, j.ID, j.Run)
	})
	if err != nil || !begun {
		return false, err
	}
	return true, c.putSchedule(ctx, j)
}

// warnDuplicates reports callbacks with suspiciously many due rows.
func (c *core) warnDuplicates(ctx context.Context, rows []dohost.Row[scheduleRow]) {
	counts := map[string]int{}
	for _, row := range rows {
		if j := row.Value; !j.Kind.recurs() {
			counts[j.Callback]++
			if counts[j.Callback] == duplicateThreshold {
				c.obj.Report(ctx, "schedule:duplicate_warning", slog.String("callback", j.Callback), slog.Int("due", duplicateThreshold))
			}
		}
	}
}

// runSchedule runs a schedule.
func (c *core) runSchedule(ctx context.Context, id string, number uint64) error {
	wanted := func(ctx context.Context) bool {
		j, ok, err := c.scheduleOf(ctx, id)
		return err == nil && ok && j.Owner == c.incarnation && j.Run == number
	}
	if !wanted(ctx) {
		return nil // cancelled, or superseded as stuck, before it began
	}
	j, _, err := c.scheduleOf(ctx, id)
	if err != nil {
		return err
	}
	lag := time.Since(j.Due)
	failed := c.attempt(ctx, j.Callback, j.ID, j.Retry, wanted)
	if ctx.Err() != nil {
		return failed
	}
	counts := false
	err = c.recordRun(ctx, func(ctx context.Context) error {
		row, ok, err := c.scheduleOf(ctx, id)
		if err != nil || !ok {
			return err
		}
		ev, now := work.Event{Kind: work.Returned, Run: number, Failed: failed != nil, Final: true}, time.Now()
		_, eff, err := c.stepItem(id, row.Item, ev, c.schedulePolicy(&row), now)
		if counts = err == nil && eff != work.Refused; !counts {
			return err
		}
		return c.endSchedule(ctx, row, now)
	})
	switch {
	case err != nil || !counts:
	case failed != nil:
		c.reportScheduleError(ctx, j, failed)
	default:
		c.obj.Report(ctx, "schedule:run", slog.String("callback", j.Callback), slog.String("id", id), slog.Duration("lag", lag))
	}
	return err
}

// endSchedule writes the row of a schedule after a run that ended now.
func (c *core) endSchedule(ctx context.Context, j scheduleRow, now time.Time) error {
	next, stays, err := j.ended(now)
	if err != nil {
		c.reportScheduleError(ctx, j, err)
	}
	if !stays {
		return c.removeSchedule(ctx, j.ID)
	}
	return c.putSchedule(ctx, next)
}

// endExhaustedSchedule ends a run after MaxInterruptions ends of incarnations cut it off. The callback may never have
// returned, so a schedule that does not recur is kept as a dead letter; one that recurs waits for its next time.
func (c *core) endExhaustedSchedule(ctx context.Context, j scheduleRow, now time.Time) error {
	if j.Kind.recurs() {
		c.reportScheduleError(ctx, j, errInterrupted)
		return c.endSchedule(ctx, j, now)
	}
	letter := item{ID: j.ID, Callback: j.Callback, Payload: j.ID, Enqueued: j.Created, Retry: j.Retry}
	depth, err := c.addDeadLetter(ctx, letter, now, errInterrupted)
	if err != nil {
		return err
	}
	if err := c.deleteSchedule(ctx, j.ID); err != nil { // the dead letter has its payload now
		return err
	}
	c.obj.Report(ctx, "schedule:dead", slog.String("callback", j.Callback), slog.String("id", j.ID), slog.Any("err", errInterrupted),
		slog.Int("depth", depth))
	return nil
}

func (c *core) reportScheduleError(ctx context.Context, j scheduleRow, err error) {
	c.obj.Report(ctx, "schedule:error", slog.String("callback", j.Callback), slog.String("id", j.ID), slog.Any("err", err))
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
	case KindInterval:
		j.Due = now.Add(j.Every)
		return j, true, nil
	case KindCron:
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
