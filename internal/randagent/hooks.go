package randagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/randtest"
)

// runNow runs a fiber in this event.
func (x *execution) runNow(ctx context.Context, in Instr) error {
	m, err := x.load(ctx)
	if err != nil {
		return err
	}
	p := progress{Number: m.number(), Code: in.Body}
	name := fmt.Sprint("run ", p.Number)
	m.Runs[name] = &fiber{Number: p.Number, Status: agent.FiberRunning, Since: x.incarnation, Code: p.Code}
	if err := x.save(ctx, m); err != nil {
		return err
	}
	err = agent.RunFiber(ctx, x.machine, name, func(ctx context.Context) error {
		x.w.Acknowledge(m.Serial)
		return x.runCode(ctx, name, p)
	})
	if err == nil {
		x.w.Compared()
	}
	return x.w.Unexpected(ctx, x.name, in, err)
}

// runCode executes the rest of the code of a fiber of RunFiber.
func (a *machine) runCode(ctx context.Context, name string, p progress) error {
	defer a.w.enter(name, a.incarnation)()
	c := &call{machine: a, id: name, run: true}
	failed := c.steps(ctx, &p,
		func(ctx context.Context, p progress) error { return agent.SetCheckpoint(ctx, p) },
		func(ctx context.Context, p progress) error { return agent.SaveCheckpoint(ctx, p) })
	if failed != nil && !errors.Is(failed, randtest.ErrFail) {
		return failed
	}
	return errors.Join(failed, a.endRun(ctx, name))
}

// endRun records the end of a fiber of RunFiber.
func (a *machine) endRun(ctx context.Context, name string) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	if m.Runs[name] == nil {
		a.w.Faultf("%s ends twice", name)
	}
	delete(m.Runs, name)
	return a.save(ctx, m)
}

// onInterrupted resumes or ends a fiber of RunFiber.
func (a *machine) onInterrupted(ctx context.Context, i *agent.InterruptedRun) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	f := m.Runs[i.Name]
	if f == nil {
		a.w.Faultf("OnInterrupted is called for %s, which has ended", i.Name)
		return nil
	}
	a.w.attempt(i.ID, i.Attempt)
	a.w.counted(i.ID, i.Attempt)
	p := progress{Number: f.Number, Code: f.Code}
	if _, err := i.Checkpoint(&p); err != nil {
		return err
	}
	a.checkpoint(f, p)
	f.Done, f.Maybe = p.Done, p.Done
	name := "hook of " + i.Name
	switch (f.Number + i.Attempt) % 5 {
	case 0:
		if a.w.Try(name) == 1 {
			return randtest.ErrFail
		}
	case 1:
		if a.w.Try(name) == 1 {
			panic("as the hook says")
		}
	case 2:
		if err := dohost.Await(ctx, func(context.Context) error { return nil }); err != nil {
			return err
		}
	case 3, 4:
		if err := a.save(ctx, m); err != nil {
			return err
		}
		id, err := i.Resume(ctx, func(ctx context.Context) error { return a.runCode(ctx, i.Name, p) })
		if err == nil && id == i.ID {
			a.w.Faultf("%s is resumed as itself", i.Name)
		}
		return err
	}
	return a.endRun(ctx, i.Name)
}

// onRecovery resumes or ends interrupted fibers.
func (a *machine) onRecovery(ctx context.Context, list []*agent.InterruptedFiber) error {
	if a.incarnation%3 == 0 {
		if err := dohost.Await(ctx, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	var rest []*fiber
	for _, i := range list {
		f := m.Fibers[i.ID]
		if f == nil || f.Kind != string(loud) {
			a.w.Faultf("OnRecovery gets %+v (%v)", i, f)
			continue
		}
		if !f.open() {
			if a.incarnation%3 != 0 { // it cannot have been cancelled during the Await
				a.w.Faultf("OnRecovery gets %v", f)
			}
			continue
		}
		var p progress
		if _, err := i.Checkpoint(&p); err != nil {
			return err
		}
		a.checkpoint(f, p)
		switch (f.Number + i.Attempt) % 8 {
		case 0:
			rest = append(rest, f)
			continue
		case 1:
			err = i.Complete(ctx, f.Number)
		case 2:
			err = i.Fail(ctx, randtest.ErrFail)
		default:
			err = i.Resume(ctx)
		}
		switch {
		case errors.Is(err, agent.ErrFiberDone) && a.incarnation%3 == 0: // restarted during the Await
			continue
		case err != nil:
			return err
		}
		switch (f.Number + i.Attempt) % 8 {
		case 1:
			f.end(agent.FiberCompleted, a.incarnation, time.Now())
			f.Result = fmt.Sprint(f.Number)
		case 2:
			f.end(agent.FiberFailed, a.incarnation, time.Now())
		}
	}
	if err := a.save(ctx, m); err != nil {
		return err
	}
	if a.w.Try(fmt.Sprint("recovery ", len(list)))%4 == 3 {
		return randtest.ErrFail
	}
	for _, f := range rest {
		f.end(agent.FiberFailed, a.incarnation, time.Now())
	}
	return a.save(ctx, m)
}

// onFiberEnded records the end of a fiber.
func (a *machine) onFiberEnded(ctx context.Context, info agent.FiberInfo) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	f := m.Fibers[info.ID]
	if f == nil || f.Gone || f.Status != info.Status || !f.notifies() || f.Notified {
		a.w.Faultf("OnFiberEnded gets %+v (%v)", info, f)
		return nil
	}
	restarts := f.Restarts
	switch n := a.w.hook(f.endName()); {
	case f.Number%6 == 1 && n == 1:
		return randtest.ErrFail
	case f.Number%6 == 2 && n == 1:
		panic("as the hook says")
	case f.Number%6 == 3:
		if err := dohost.Await(ctx, func(context.Context) error { a.w.Acknowledge(m.Serial); return nil }); err != nil {
			return err
		}
		if m, err = a.load(ctx); err != nil {
			return err
		}
		if f = m.Fibers[info.ID]; f.Restarts != restarts {
			return nil
		}
	case f.Number%6 == 4 && f.Status == agent.FiberFailed && f.Restarts < maxRestarts:
		was, err := a.Fibers().Restart(ctx, f.ID)
		if err != nil {
			return err
		}
		if !was {
			a.w.Faultf("OnFiberEnded cannot restart %v", f)
		}
		f.restart(a.incarnation)
		return a.save(ctx, m)
	}
	f.Notified = true
	f.Ended = time.Now().UnixMilli() // the retention period begins
	return a.save(ctx, m)
}
