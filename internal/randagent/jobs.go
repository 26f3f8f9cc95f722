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

// payload is the payload of schedules and items.
type payload struct {
	Number int
	Code   []Instr
}

// changeTimer executes an instruction that makes or cancels a schedule.
func (x *execution) changeTimer(ctx context.Context, m *model, in Instr) error {
	if in.Op == Schedule {
		j := &job{Number: m.number(), When: when{in.K, in.N % 8}, Attempts: 1 + in.N%3, Since: x.incarnation, Code: in.Body}
		at, due := j.When.begin(time.Now())
		j.Due = due.UnixMilli()
		o := &agent.ScheduleOptions{Retry: policy(j.Attempts)}
		id, err := agent.Schedule(ctx, x.machine, at, timer, payload{j.Number, j.Code}, o)
		if err != nil {
			return err
		}
		j.ID = id
		m.Timers[j.Number] = j
		return x.save(ctx, m)
	}
	j, ok := randtest.At(m.timers(), in.K)
	if !ok {
		return nil
	}
	if in.Op == ScheduleAgain {
		if !j.When.recurs() {
			return nil
		}
		at, _ := j.When.begin(time.Now())
		id, err := agent.Schedule(ctx, x.machine, at, timer, payload{j.Number, j.Code}, nil)
		if err == nil {
			x.expect(in, j, id, j.ID)
		}
		return err
	}
	existed, err := x.Schedules().Cancel(ctx, j.ID)
	if err != nil {
		return err
	}
	x.expect(in, j, existed, true)
	delete(m.Timers, j.Number)
	return x.save(ctx, m)
}

func policy(attempts int) dohost.RetryPolicy {
	return dohost.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Second}
}

// changeQueue executes an instruction that changes the queue or the dead letters.
func (x *execution) changeQueue(ctx context.Context, m *model, in Instr) error {
	switch in.Op {
	case Enqueue:
		return x.enqueue(ctx, m, in)
	case CancelItem:
		j, ok := randtest.At(m.Queue, in.K)
		if !ok {
			return nil
		}
		existed, err := x.Queue().Cancel(ctx, j.ID)
		if err != nil {
			return err
		}
		x.expect(in, j, existed, true)
		m.Queue = slices.DeleteFunc(m.Queue, func(o *job) bool { return o == j })
		m.Removed[j.ID] = true
		return x.save(ctx, m)
	}
	j, ok := randtest.At(m.Dead, in.K)
	if !ok {
		return nil
	}
	if in.Op == DeleteDead {
		existed, err := x.DeadLetters().Delete(ctx, j.ID)
		if err != nil {
			return err
		}
		x.expect(in, j, existed, true)
		m.Dead = slices.DeleteFunc(m.Dead, func(o *job) bool { return o == j })
		return x.save(ctx, m)
	}
	existed, err := x.DeadLetters().Retry(ctx, j.ID)
	queued, _ := findID(m.Queue, j.ID)
	if queued != nil || err != nil && m.Removed[j.ID] {
		if err == nil {
			x.w.Faultf("%s: a dead letter is retried, although its id is in the queue as %v", x.name, queued)
		}
		if randtest.Ended(ctx, err) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	x.expect(in, j, existed, true)
	m.Dead = slices.DeleteFunc(m.Dead, func(o *job) bool { return o == j })
	j.Since = x.incarnation
	m.Queue = append(m.Queue, j)
	delete(x.failures, j.Number)
	return x.save(ctx, m)
}

func (x *execution) enqueue(ctx context.Context, m *model, in Instr) error {
	j := &job{Number: m.number(), Attempts: 1 + in.N%3, Since: x.incarnation, Code: in.Body}
	o := &agent.QueueOptions{Retry: policy(j.Attempts)}
	if in.K > 0 {
		o.ID = fmt.Sprint("item ", in.K)
	}
	id, err := agent.Enqueue(ctx, x.machine, task, payload{j.Number, j.Code}, o)
	if err != nil {
		return err
	}
	j.ID = id
	switch old, i := findID(m.Queue, id); {
	case o.ID != "" && id != o.ID:
		x.w.Faultf("%s: the id of an item is %q, want %q", x.name, id, o.ID)
	case old != nil:
		m.Queue[i] = j
	case m.Removed[id]: // its run may not have ended: then the new one is in its place
		list, err := x.Queue().List(ctx, nil)
		if err != nil {
			return err
		}
		if len(list) > 0 && list[0].ID == id {
			m.Queue = append([]*job{j}, m.Queue...)
			break
		}
		m.Queue = append(m.Queue, j)
	default:
		m.Queue = append(m.Queue, j)
	}
	return x.save(ctx, m)
}

// runTimer runs a schedule.
func (a *machine) runTimer(ctx context.Context, p payload) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	j := m.Timers[p.Number]
	queued, _ := find(m.Queue, p.Number)
	switch now := time.Now().UnixMilli(); {
	case j == nil && queued != nil: // it was a dead letter
		return a.runTask(ctx, p)
	case j == nil:
		a.w.Faultf("schedule %d runs, and does not exist", p.Number)
	case now < j.Due:
		a.w.Faultf("schedule %v runs at %d", j, now)
	}
	defer a.w.enter(fmt.Sprint("schedule ", p.Number), a.incarnation)()
	if j != nil && j.When.recurs() && a.w.Try(fmt.Sprint("begin ", p.Number)) > maxBegins {
		return a.cancelSelf(ctx, m, j)
	}
	m, failed, last, err := a.runJob(ctx, p, func(m *model) *job { return m.Timers[p.Number] })
	if err != nil {
		return err
	}
	j = m.Timers[p.Number]
	switch {
	case j == nil || !last:
		return failed
	case !j.When.recurs():
		delete(m.Timers, j.Number)
	case j.Runs+1 == maxRuns:
		return errors.Join(failed, a.cancelSelf(ctx, m, j))
	default:
		j.Runs++
		j.Due, j.Since = j.When.next(time.Now()).UnixMilli(), a.incarnation
	}
	return errors.Join(failed, a.save(ctx, m))
}

// cancelSelf cancels a schedule that runs.
func (a *machine) cancelSelf(ctx context.Context, m *model, j *job) error {
	existed, err := a.Schedules().Cancel(ctx, j.ID)
	if err != nil {
		return err
	}
	if !existed {
		a.w.Faultf("schedule %v cannot be cancelled", j)
	}
	delete(m.Timers, j.Number)
	return a.save(ctx, m)
}

// runTask runs an item of the queue, or a schedule that was a dead letter.
func (a *machine) runTask(ctx context.Context, p payload) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	if len(m.Queue) == 0 || m.Queue[0].Number != p.Number {
		a.w.Faultf("item %d runs, and the queue is %v", p.Number, m.Queue)
	}
	defer a.w.enter("the queue", a.incarnation)()
	m, failed, last, err := a.runJob(ctx, p, func(m *model) *job { j, _ := find(m.Queue, p.Number); return j })
	if err != nil {
		return err
	}
	j, i := find(m.Queue, p.Number)
	if j == nil || !last {
		return failed
	}
	m.Queue = slices.Delete(m.Queue, i, i+1)
	if failed != nil {
		m.addDead(j)
	}
	return errors.Join(failed, a.save(ctx, m))
}

// runJob executes the code of a callback. It returns the model at its end, and whether the row ends with this attempt.
func (a *machine) runJob(ctx context.Context, p payload, of func(*model) *job) (m *model, failed error, last bool, err error) {
	x := &execution{machine: a, name: fmt.Sprint("job ", p.Number)}
	if failed = x.do(ctx, p.Code); failed != nil && !errors.Is(failed, randtest.ErrFail) {
		return nil, nil, false, failed
	}
	if m, err = a.load(ctx); err != nil {
		return nil, nil, false, err
	}
	j := of(m)
	if j == nil {
		return m, failed, true, nil
	}
	a.failures[p.Number]++
	if last = failed == nil || a.failures[p.Number] == j.Attempts; last {
		delete(a.failures, p.Number)
	}
	return m, failed, last, nil
}
