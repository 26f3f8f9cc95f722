package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// parentAgent is an agent that has a child, and records that it was created.
type parentAgent struct{ *agent.Agent[none] }

// child is a sub-agent with a schedule, and perhaps with a child of its own.
type child struct{ *agent.Agent[bool] }

var (
	parentAgents dohost.Namespace[parentAgent] = "parent-agent"
	children     dohost.Namespace[child]       = "child"
)

const scheduled agent.Callback[none] = "cry"

// The child of the parentAgent, and the name of its object.
const (
	childName   = "a/b"
	childObject = "sub/parent-agent/a/a%2Fb"
)

// createChild creates the child, with a child of its own or without, and records it once it has its schedule.
func (n *parentAgent) createChild(ctx context.Context, parent bool) (none, error) {
	err := retry(ctx, func(ctx context.Context) error {
		c, err := agent.SubAgent(ctx, n, children, childName) // again: it may have been deleted since
		if err == nil {
			_, err = dohost.Call(ctx, c, (*child).setUp, parent)
		}
		return err
	})
	if err != nil {
		return none{}, err
	}
	return none{}, dohost.Put(ctx, n.Storage(), "came", true)
}

// deleteChild deletes the child. If the end of one of the deleted incarnations interferes, it tries again.
func (n *parentAgent) deleteChild(ctx context.Context, _ none) (none, error) {
	for {
		_, err := n.SubAgents().Delete(ctx, string(children), childName)
		if ctx.Err() != nil || !errors.Is(err, dohost.ErrFenced) {
			return none{}, err
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil { // a former owner of a shared log gets the error until it ends itself
			return none{}, err
		}
	}
}

// childStatus is the parent's view of its child.
type childStatus struct{ Came, Listed bool }

func (n *parentAgent) childStatus(ctx context.Context, _ none) (r childStatus, err error) {
	r.Came, _, err = dohost.Get[bool](ctx, n.Storage(), "came")
	infos, err2 := n.SubAgents().List(ctx, "")
	_, has, err3 := n.SubAgents().Get(ctx, string(children), childName)
	r.Listed = len(infos) == 1 && infos[0].Name == childName
	return r, errors.Join(err, err2, err3, differ("whether it has the child", has, r.Listed))
}

// setUp gives a child a state, a schedule, and perhaps a child with a state.
func (c *child) setUp(ctx context.Context, parent bool) (none, error) {
	if done, err := c.State(ctx); err != nil || done {
		return none{}, err
	}
	if parent {
		grandchild, err := agent.SubAgent(ctx, c, children, "g")
		if err == nil {
			_, err = retryCall(ctx, grandchild, (*child).setState, none{})
		}
		if err != nil {
			return none{}, err
		}
	}
	_, err := agent.Schedule(ctx, c, agent.After(time.Second), scheduled, none{}, nil)
	return none{}, errors.Join(err, c.SetState(ctx, true))
}

// setState sets the state of a child's child.
func (c *child) setState(ctx context.Context, _ none) (none, error) {
	return none{}, c.SetState(ctx, true)
}

// onSchedule takes a while.
func (c *child) onSchedule(ctx context.Context, _ none) error {
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return dohost.Add(ctx, c.Storage(), "runs", 1)
}

// summary describes a child: how often its schedule ran, and whether it is set up.
func (c *child) summary(ctx context.Context, _ none) (traits string, err error) {
	runs, _, err := dohost.Get[int](ctx, c.Storage(), "runs")
	setUp, err2 := c.State(ctx)
	return fmt.Sprintf("ran %d times, set up %t", runs, setUp), errors.Join(err, err2)
}

// runSubAgents creates the child and deletes it while its schedule runs; then it creates and deletes the child
// while another client creates the child.
func runSubAgents(ctx context.Context, h *dohosttest.Host) error {
	n := parentAgents.Get(h, "a")
	if _, err := retryCall(ctx, n, (*parentAgent).createChild, true); err != nil {
		return err
	}
	h.Advance(1500 * time.Millisecond)
	if _, err := retryCall(ctx, n, (*parentAgent).deleteChild, none{}); err != nil {
		return err
	}
	if err := checkObjects(ctx, h); err != nil {
		return err
	}
	if _, err := retryCall(ctx, n, (*parentAgent).createChild, false); err != nil {
		return err
	}
	other := h.Client(func(ctx context.Context) error {
		_, err := retryCall(ctx, n, (*parentAgent).createChild, false)
		return err
	})
	_, err := retryCall(ctx, n, (*parentAgent).deleteChild, none{})
	return errors.Join(err, other.Wait())
}

// checkObjects requires exactly these children to exist.
func checkObjects(ctx context.Context, h *dohosttest.Host, want ...string) error {
	var found []string
	for id, err := range h.Host().Objects(ctx, string(children), "") {
		if err != nil {
			return err
		}
		found = append(found, id.Name)
	}
	return differ("the children that there are", found, want)
}

// checkChildren requires a listed child to exist, complete and created once, and an unlisted child to have
// left nothing. Both are allowed, because the last creation and the deletion were concurrent.
func checkChildren(ctx context.Context, h *dohosttest.Host) error {
	r, err := dohost.Call(ctx, parentAgents.Get(h, "a"), (*parentAgent).childStatus, none{})
	if err = errors.Join(err, differ("start of the child", r.Came, true)); err != nil {
		return err
	}
	if !r.Listed {
		return checkObjects(ctx, h)
	}
	if err := checkObjects(ctx, h, childObject); err != nil {
		return err // a call to a child that does not exist would make it
	}
	got, err := dohost.Call(ctx, children.Get(h, childObject), (*child).summary, none{})
	return errors.Join(err, differ("the child", got, "ran 1 times, set up true"))
}

// newSubAgents has sub-agents that are created and deleted, with all of their data.
func newSubAgents() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{
			agent.Bind(parentAgents, func(_ context.Context, a *agent.Agent[none]) (*parentAgent, error) { return &parentAgent{a}, nil }, nil,
				agent.Sub[parentAgent](children)),
			agent.Bind(children, func(_ context.Context, a *agent.Agent[bool]) (*child, error) { return &child{a}, nil }, nil,
				agent.Sub[child](children), agent.OnSchedule(scheduled, (*child).onSchedule)),
		},
		Places: []dohost.Place{dohost.PlaceCommitted, dohost.PlaceAwaited},
		Run:    runSubAgents,
		Check:  checkChildren,
	}
}
