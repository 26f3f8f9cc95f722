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

// progress is the checkpoint of a fiber.
type progress struct {
	Number int
	Done   int // instructions of Code
	Code   []Instr
}

// changeFiber executes an instruction that starts, cancels, restarts or deletes a fiber.
func (x *execution) changeFiber(ctx context.Context, m *model, in Instr) error {
	if in.Op == Start {
		return x.start(ctx, m, in)
	}
	f, ok := randtest.At(m.fibers(), in.K)
	if !ok {
		return nil
	}
	switch in.Op {
	case Cancel:
		info, _, err := x.Fibers().Get(ctx, f.ID)
		if err != nil {
			return err
		}
		was, err := x.Fibers().Cancel(ctx, f.ID)
		if err != nil {
			return err
		}
		if info.Status != agent.FiberDead {
			x.expect(in, f, was, f.open())
		}
		if was {
			f.end(agent.FiberCancelled, x.incarnation, time.Now())
		}
	case Restart:
		if f.Restarts == maxRestarts {
			return nil
		}
		info, _, err := x.Fibers().Get(ctx, f.ID)
		if err != nil {
			return err
		}
		was, err := x.Fibers().Restart(ctx, f.ID)
		if err != nil {
			return err
		}
		x.expect(in, f, was, f.Status == agent.FiberFailed || f.Status == agent.FiberCancelled || info.Status == agent.FiberDead)
		if was {
			f.restart(x.incarnation)
		}
	case Remove:
		existed, err := x.Fibers().Delete(ctx, f.ID)
		if err != nil {
			return err
		}
		if pending := f.notifies() && !f.Notified; !pending || !x.gaveUp(f) {
			x.expect(in, f, existed, !f.open() && !pending)
		}
		f.Gone = existed
	}
	return x.save(ctx, m)
}

// restart makes a fiber run again.
func (f *fiber) restart(incarnation int) {
	f.Status, f.Since, f.Ended, f.Notified, f.Errors = agent.FiberRunning, incarnation, 0, false, 0
	f.Restarts++
}

func (x *execution) start(ctx context.Context, m *model, in Instr) error {
	kind, o := quiet, &agent.FiberOptions{}
	if in.N%2 == 1 {
		kind = loud
	}
	var old *fiber
	if in.K > 0 {
		o.Key = fmt.Sprint("key ", in.K)
		for _, f := range m.fibers() {
			if f.Key == o.Key {
				old = f
			}
		}
		info, ok, err := x.Fibers().GetByKey(ctx, o.Key)
		if err != nil {
			return err
		}
		if old == nil && ok || old != nil && (!ok || info.ID != old.ID) {
			x.w.Faultf("GetByKey of %q returns %v %+v, want %v", o.Key, ok, info, old)
		}
	}
	p := progress{Number: m.number(), Code: in.Body}
	started, err := agent.StartFiber(ctx, x.machine, kind, p, o)
	switch {
	case old != nil && old.Kind != string(kind):
		if err == nil {
			x.w.Faultf("%s: a second fiber of %q with another kind starts", x.name, o.Key)
		}
		return nil
	case errors.Is(err, dohost.ErrOverloaded):
		return nil
	case err != nil:
		return err
	case old != nil:
		x.expect(in, old, started, agent.Started{ID: old.ID})
		return nil
	}
	x.expect(in, o.Key, started.Accepted, true)
	m.Fibers[started.ID] = &fiber{
		Number: p.Number, ID: started.ID, Kind: string(kind), Key: o.Key, Status: agent.FiberRunning, Since: x.incarnation,
	}
	return x.save(ctx, m)
}

// wait waits for a fiber, for a minute at most.
func (x *execution) wait(ctx context.Context, m *model, in Instr) error {
	f, ok := randtest.At(m.fibers(), in.K)
	if !ok {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	info, ok, err := x.Fibers().Wait(short, f.ID)
	if short.Err() != nil && ctx.Err() == nil {
		return nil
	}
	if err != nil || !ok {
		return err
	}
	if info.Ended.IsZero() && info.Status != agent.FiberDead {
		x.w.Faultf("Wait for %v returns %+v", f, info)
	}
	return nil
}

// runFiber executes the code of a fiber, from its checkpoint on.
func (a *machine) runFiber(ctx context.Context, s *agent.Fiber[progress]) error {
	p := s.Checkpoint()
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	f := m.Fibers[s.ID]
	switch {
	case f == nil || !f.open():
		a.w.Faultf("number %d (%v) is called", p.Number, f)
		return nil
	case f.Errors > maxRetries:
		a.w.Faultf("%v is called again", f)
	}
	defer a.w.enter("fiber "+s.ID, a.incarnation)()
	a.checkpoint(f, p)
	f.Done, f.Maybe = p.Done, p.Done
	if err := a.save(ctx, m); err != nil {
		return err
	}
	call := &call{machine: a, id: s.ID, restarts: f.Restarts, attempt: s.Attempt}
	a.w.attempt(f.endName(), s.Attempt)
	err = call.steps(ctx, &p, s.SetCheckpoint, s.SaveCheckpoint)
	m, f, err2 := call.fiber(ctx)
	switch {
	case err2 != nil:
		return err2
	case f == nil:
		return err
	case errors.Is(err, randtest.ErrFail):
		f.Errors++
		return errors.Join(err, a.save(ctx, m))
	case err != nil:
		return err
	}
	f.end(agent.FiberCompleted, a.incarnation, time.Now())
	f.Result = fmt.Sprint(p.Number)
	return errors.Join(s.SetResult(p.Number), a.save(ctx, m))
}

// call is a call of a fiber's method, or of the function of RunFiber.
type call struct {
	*machine
	id       string // or the name of RunFiber
	restarts int
	attempt  int
	run      bool // RunFiber
}

// fiber returns the fiber of the call, or nil if the call does not count any more.
func (c *call) fiber(ctx context.Context) (*model, *fiber, error) {
	m, err := c.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := m.Fibers[c.id]
	if c.run {
		f = m.Runs[c.id]
	}
	if f == nil || !f.open() || f.Restarts != c.restarts {
		return m, nil, nil
	}
	return m, f, nil
}

// steps executes the rest of a fiber's code, and saves checkpoints.
func (c *call) steps(ctx context.Context, p *progress, set, save func(context.Context, progress) error) error {
	x := &execution{machine: c.machine, name: fmt.Sprint("fiber ", p.Number)}
	for p.Done < len(p.Code) {
		in := p.Code[p.Done]
		if err := x.one(ctx, fmt.Sprintf("%s/%d", x.name, p.Done), in); err != nil {
			return err
		}
		p.Done++
		if err := c.saveCheckpoint(ctx, x, *p, in.Save, set, save); err != nil {
			return err
		}
	}
	return nil
}

// saveCheckpoint saves a checkpoint. One that is saved in an Await is not in the batch of the model.
func (c *call) saveCheckpoint(ctx context.Context, x *execution, p progress, how Saving, set, save func(context.Context, progress) error) error {
	if how == SaveNone {
		return nil
	}
	m, f, err := c.fiber(ctx)
	if err != nil {
		return err
	}
	if f != nil {
		if f.Maybe = p.Done; how != SaveAwait {
			f.Done, f.Since = p.Done, c.incarnation
		}
		if err := c.save(ctx, m); err != nil {
			return err
		}
	}
	serial := m.Serial
	switch how {
	case SaveSet:
		err = set(ctx, p)
	case SaveWait:
		err = save(ctx, p)
	case SaveAwait:
		err = dohost.Await(ctx, func(ctx context.Context) error { return save(ctx, p) })
	}
	switch {
	case err == nil && f == nil:
		c.w.Faultf("%s has ended, and saves a checkpoint", x.name)
	case errors.Is(err, agent.ErrFiberDone) && how == SaveAwait:
		return err // it was cancelled during the Await
	case err != nil && f != nil && !randtest.Ended(ctx, err):
		c.w.Faultf("%v cannot save a checkpoint: %v", f, err)
	}
	if err != nil {
		return err
	}
	if how != SaveSet {
		c.w.Acknowledge(serial)
		c.w.counted(c.countName(), c.attempt)
	}
	if how == SaveAwait {
		if m, f, err = c.fiber(ctx); err != nil || f == nil {
			return err
		}
		f.Done, f.Since = p.Done, c.incarnation
		return c.save(ctx, m)
	}
	return nil
}

func (c *call) countName() string { return fmt.Sprintf("%s/%d", c.id, c.restarts) }
