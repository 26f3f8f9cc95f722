package randagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// child is a sub-agent. It has one value; each write has another one.
type child struct {
	*agent.Agent[state]
	w *Observer
}

var children dohost.Namespace[child] = "random-child"

const valueKey = "value"

// ChildClass returns the class of the sub-agents.
func ChildClass(w *Observer) dohost.Class {
	return agent.Bind(children, func(ctx context.Context, base *agent.Agent[state]) (*child, error) {
		c := &child{base, w}
		v, _, err := dohost.Get[int](ctx, c.Storage(), valueKey)
		if err == nil {
			w.childFinds(c.name(), c.Object().ID(), v)
		}
		return c, err
	}, nil)
}

func (c *child) name() string {
	path := c.Path()
	return path[len(path)-1].Name
}

// put writes a value.
func (c *child) put(ctx context.Context, v int) (int, error) {
	c.w.childWrites(c.name(), v)
	return v, dohost.Put(ctx, c.Storage(), valueKey, v)
}

// end destroys the sub-agent.
func (c *child) end(ctx context.Context) (struct{}, error) { return struct{}{}, c.Destroy(ctx) }

// childModel is a sub-agent in the model of the Observer.
type childModel struct {
	id           dohost.ID
	history      []childWrite // those that may be its value, in order; the first one is that of no write
	acknowledged int          // the number of the newest write that has returned
	number       int          // of the last write
	deletions    int          // that have not returned
	loose        bool         // a deletion has failed, so it may happen at any time
}

type childWrite struct{ number, value int }

func (w *Observer) childLocked(name string) *childModel {
	c := w.children[name]
	if c == nil {
		c = &childModel{history: []childWrite{{}}}
		w.children[name] = c
	}
	return c
}

// childFinds begins an incarnation of a sub-agent with the value that it finds.
func (w *Observer) childFinds(name string, id dohost.ID, v int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Compared()
	c := w.childLocked(name)
	c.id = id
	i := slices.IndexFunc(c.history, func(p childWrite) bool { return p.value == v && p.number >= c.acknowledged })
	switch {
	case i >= 0:
		c.history = c.history[:i+1]
	case v == 0 && (c.deletions > 0 || c.loose):
		c.history, c.acknowledged = []childWrite{{number: c.number}}, 0
	default:
		w.Faultf("the sub-agent %s finds the value %d, want one of %v from number %d on", name, v, c.history, c.acknowledged)
	}
}

// childWrites records a value that a sub-agent is about to write.
func (w *Observer) childWrites(name string, v int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.childLocked(name)
	c.number++
	c.history = append(c.history, childWrite{c.number, v})
}

// childHasWritten records that a write of a sub-agent has returned.
func (w *Observer) childHasWritten(name string, v int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.childLocked(name)
	for _, p := range c.history {
		if p.value == v && c.deletions == 0 {
			c.acknowledged = max(c.acknowledged, p.number)
		}
	}
}

// deleteChild begins the deletion of a sub-agent. done ends it: a sub-agent that was deleted has only values that were
// written since.
func (w *Observer) deleteChild(name string) (done func(err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.childLocked(name)
	c.deletions++
	begin := c.number
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		c.deletions--
		if err != nil {
			c.loose = true
			return
		}
		since := slices.DeleteFunc(c.history, func(p childWrite) bool { return p.number <= begin })
		c.history, c.acknowledged = append([]childWrite{{number: begin}}, since...), 0
	}
}

// childNames are the names of sub-agents.
func childName(k int) string { return fmt.Sprint("child ", k%3) }

// changeSubs executes an instruction for sub-agents.
func (x *execution) changeSubs(ctx context.Context, m *model, in Instr) error {
	name := childName(in.K)
	if in.Op == DeleteSub {
		return x.deleteSub(ctx, m, in)
	}
	stub, err := agent.SubAgent(ctx, x, children, name)
	if err != nil {
		return err
	}
	for _, requested := range x.deleting[name] {
		*requested = true
	}
	if !m.Subs[name] {
		m.Subs[name] = true
		if err := x.save(ctx, m); err != nil {
			return err
		}
	}
	switch in.Op {
	case PutSub:
		v := x.w.Next()
		_, err := dohost.Call(ctx, stub, (*child).put, v)
		if err == nil {
			x.w.childHasWritten(name, v)
		}
	case DestroySub:
		done := x.w.deleteChild(name)
		_, err := dohost.CallNoArg(ctx, stub, (*child).end)
		if errors.Is(err, agent.ErrDestroyed) {
			err = nil
		}
		done(err)
	}
	return context.Cause(ctx)
}

func (x *execution) deleteSub(ctx context.Context, m *model, in Instr) error {
	name := childName(in.K)
	requested := new(bool)
	x.deleting[name] = append(x.deleting[name], requested)
	done := func(error) {}
	if m.Subs[name] {
		done = x.w.deleteChild(name)
	}
	existed, err := x.SubAgents().Delete(ctx, string(children), name)
	done(err)
	x.deleting[name] = slices.DeleteFunc(x.deleting[name], func(r *bool) bool { return r == requested })
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrClosed): // the incarnation of the sub-agent has ended
		return nil
	case err != nil:
		return err
	}
	x.expect(in, name, existed, m.Subs[name])
	if !existed || *requested {
		return nil
	}
	now, err := x.read(ctx)
	if err != nil {
		return err
	}
	delete(now.Subs, name)
	return x.save(ctx, now)
}

// verifySubs compares the list of sub-agents with the model.
func (a *machine) verifySubs(ctx context.Context, m *model) error {
	list, err := a.SubAgents().List(ctx, "")
	if err != nil {
		return err
	}
	var names []string
	for _, info := range list {
		names = append(names, info.Name)
	}
	if want := slices.Sorted(maps.Keys(m.Subs)); !slices.Equal(names, want) {
		a.w.Faultf("the sub-agents are %v, want %v", names, want)
	}
	return nil
}

// checkChildren checks that nothing is left of the sub-agents that were deleted.
func (w *Observer) checkChildren(ctx context.Context, h *dohosttest.Host) error {
	w.mu.Lock()
	models := maps.Clone(w.children)
	w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(models)) {
		c := models[name]
		if len(c.history) != 1 || c.history[0].value != 0 || c.loose || c.deletions > 0 || c.id == (dohost.ID{}) {
			continue
		}
		if exists, err := h.Host().Exists(ctx, c.id); err != nil || exists {
			w.Faultf("the sub-agent %s was deleted, and exists: %v, %v", name, exists, err)
		}
	}
	return w.Err()
}
