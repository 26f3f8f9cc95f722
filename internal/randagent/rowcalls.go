package randagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/randtest"
)

// The ends of a call for rows, which the first of them selects. Those of a number of tries finish the rows afterwards.
const (
	endDone      = iota // the rows are finished
	endDoneError        // they are finished, and the method returns an error
	endFirst            // the first row is finished, and the method returns nil
	endError            // an error, N % 4 tries
	endLeft             // nil, although the rows are in the index; some tries
	endPostponed        // a PostponeError, some tries
	endPutBack          // the first row is finished, put back, and an error; two tries
	endNever            // an error, always
	ends
)

// runRows works on rows, as each OnRows does.
func (a *machine) runRows(ctx context.Context, f family, rows []dohost.Row[entry]) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	run := a.beginRows(ctx, m, f, rows)
	if run == nil {
		return nil // a fault
	}
	if err := a.save(ctx, m); err != nil {
		return err
	}
	ctx = context.WithValue(ctx, rowRunKey{}, run)
	e := rows[0].Value
	x := &execution{machine: a, name: fmt.Sprint("row ", e.Number)}
	failed := x.do(ctx, e.Code)
	if failed != nil && !errors.Is(failed, randtest.ErrFail) {
		return failed
	}
	if m, err = a.load(ctx); err != nil {
		return err
	}
	if failed == nil {
		if m, failed, err = a.finishRows(ctx, m, run, e); err != nil {
			return err
		}
	}
	a.endRows(m, run, failed)
	a.w.Compared()
	if err := a.save(ctx, m); err != nil {
		return err
	}
	return failed
}

// beginRows compares the rows of a call with the model. It returns nil after a fault.
func (a *machine) beginRows(ctx context.Context, m *model, f family, rows []dohost.Row[entry]) *rowRun {
	var keys []string
	numbers := map[string]int{}
	for _, row := range rows {
		keys = append(keys, row.Key)
		numbers[row.Key] = row.Value.Number
		if r := m.Rows[row.Key]; r == nil || r.Family != f || r.Number != row.Value.Number {
			a.w.Faultf("a call of %s gets %s with number %d, want %+v", f, row.Key, row.Value.Number, r)
			return nil
		}
	}
	w := m.workWith(f, keys[0])
	if w == nil || !slices.Equal(w.Keys, keys) || !slices.Equal(m.sameGroup(w), keys) {
		a.w.Faultf("a call of %s gets the rows %q, want %v", f, keys, w)
		return nil
	}
	run := a.runs[w.ID]
	switch now := time.Now().UnixMilli(); {
	case run == nil || run.called:
		a.w.Faultf("%v are called again during their call, or have not begun", w)
		return nil
	case now < w.Next[0]:
		a.w.Faultf("%v are called at %d", w, now)
	case w.Called != 0 && w.Attempt <= w.CalledAt:
		a.w.Faultf("%v are called after an interruption in incarnation %d, which is not counted", w, w.Called)
	}
	position := dohost.WorkPositionOf(ctx).Name()
	for _, key := range keys {
		if r := m.Rows[key]; position == "" || w.Position == "" && r.Position == position || w.Position != "" && w.Position != position {
			a.w.Faultf("%v are called with position %q, before with %q; %s with %q", w, position, w.Position, key, r.Position)
		}
		m.Rows[key].Position = position
	}
	run.called, run.numbers = true, numbers
	w.Position, w.Called, w.CalledAt = position, a.incarnation, w.Attempt
	return run
}

// finishRows ends the code of a call: it finishes some of its rows, and returns the error of the method.
func (a *machine) finishRows(ctx context.Context, m *model, run *rowRun, e entry) (_ *model, failed, err error) {
	keys := slices.Clone(m.workOf(run.id).Keys)
	n := a.w.Try(fmt.Sprint("rows ", e.Number))
	end := e.End
	switch tries := 1 + e.N%3; {
	case end == endError && n > e.N%4, (end == endLeft || end == endPostponed) && n > tries, end == endPutBack && n > 2:
		end = endDone
	}
	switch end {
	case endDoneError, endPutBack, endError, endNever:
		failed = randtest.ErrFail
	case endPostponed:
		failed = &agent.PostponeError{After: time.Duration(e.N%40) * 50 * time.Millisecond, Err: randtest.ErrFail}
	}
	switch {
	case end >= endError && end != endPutBack:
		return m, failed, nil
	case end == endFirst || end == endPutBack:
		keys = keys[:min(1, len(keys))]
	}
	for i, key := range keys {
		if e.N%4 < 3 && m.Rows[key].Number != run.numbers[key] {
			continue // the next call works on the new row
		}
		if err := a.takeRow(ctx, m, key, (e.N+i)%2 == 0); err != nil {
			return m, nil, err
		}
	}
	if err := a.save(ctx, m); err != nil {
		return m, nil, err
	}
	if e.N%5 == 0 {
		if err := dohost.Await(ctx, func(context.Context) error { a.w.Acknowledge(m.Serial); return nil }); err != nil {
			return m, nil, err
		}
		if m, err = a.load(ctx); err != nil {
			return m, nil, err
		}
	}
	if end == endPutBack && len(keys) > 0 && m.Rows[keys[0]].Family == "" {
		e.Key, e.Number = keys[0], m.Rows[keys[0]].Number
		if err := entries.Put(ctx, a.Storage(), e); err != nil {
			return m, nil, err
		}
		a.written(ctx, m, e.Key, e.Family, e.Number)
	}
	return m, failed, nil
}

// endRows ends a call in the model.
func (a *machine) endRows(m *model, run *rowRun, failed error) {
	delete(a.runs, run.id)
	w := m.workOf(run.id)
	if failed == nil {
		w.Keys = slices.DeleteFunc(w.Keys, func(key string) bool { return run.changed[key] })
	}
	w.Called, w.Run, w.Begun = 0, 0, nil
	if len(w.Keys) == 0 {
		m.removeWork(w.ID)
		return
	}
	now, o := time.Now().UnixMilli(), families[w.Family]
	w.State = agent.RowsWaiting
	if p, ok := errors.AsType[*agent.PostponeError](failed); ok {
		next := now + max(p.After, time.Second).Milliseconds()
		w.Next, w.Stalls = [2]int64{next, next}, 0
		return
	}
	w.Attempt++
	w.Failures++
	delay := min(o.Retry.BaseDelay<<(w.Failures-1), o.Retry.MaxDelay).Milliseconds()
	w.Next = [2]int64{now + delay*3/4, now + delay}
	if w.Failures+w.Stalls >= o.Retry.MaxAttempts {
		w.State, w.Next = agent.RowsParked, [2]int64{}
	}
}
