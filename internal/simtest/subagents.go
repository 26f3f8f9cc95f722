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

// nursery is an agent that has a child, and records that it came.
type nursery struct{ *agent.Agent[none] }

// child is a sub-agent with a schedule, and perhaps with a child of its own.
type child struct{ *agent.Agent[bool] }

var (
	nurseries dohost.Namespace[nursery] = "nursery"
	children  dohost.Namespace[child]   = "child"
)

const cry agent.Callback[none] = "cry"

// The child of the nursery, and the name of its object.
const (
	infant       = "a/b"
	infantObject = "sub/nursery/a/a%2Fb"
)

// admit creates the child, with a child of its own or without, and records it once it has its schedule.
func (n *nursery) admit(ctx context.Context, parent bool) (none, error) {
	err := surely(ctx, func(ctx context.Context) error {
		c, err := agent.SubAgent(ctx, n, children, infant) // again: it may have been deleted since
		if err == nil {
			_, err = dohost.Call(ctx, c, (*child).settle, parent)
		}
		return err
	})
	if err != nil {
		return none{}, err
	}
	return none{}, dohost.Put(ctx, n.Storage(), "came", true)
}

// dismiss deletes the child. If the end of one of the deleted incarnations interferes, it tries again.
func (n *nursery) dismiss(ctx context.Context, _ none) (none, error) {
	for {
		_, err := n.SubAgents().Delete(ctx, string(children), infant)
		if ctx.Err() != nil || !errors.Is(err, dohost.ErrFenced) {
			return none{}, err
		}
	}
}

// register is the nursery's view of its child.
type register struct{ Came, Listed bool }

func (n *nursery) register(ctx context.Context, _ none) (r register, err error) {
	r.Came, _, err = dohost.Get[bool](ctx, n.Storage(), "came")
	infos, err2 := n.SubAgents().List(ctx, "")
	has, err3 := n.SubAgents().Exists(ctx, string(children), infant)
	r.Listed = len(infos) == 1 && infos[0].Name == infant
	return r, errors.Join(err, err2, err3, differ("whether it has the child", has, r.Listed))
}

// settle gives a child a state, a schedule, and perhaps a child with a state.
func (c *child) settle(ctx context.Context, parent bool) (none, error) {
	if settled, err := c.State(ctx); err != nil || settled {
		return none{}, err
	}
	if parent {
		grandchild, err := agent.SubAgent(ctx, c, children, "g")
		if err == nil {
			_, err = ask(ctx, grandchild, (*child).grow, none{})
		}
		if err != nil {
			return none{}, err
		}
	}
	_, err := agent.Schedule(ctx, c, agent.After(time.Second), cry, none{}, nil)
	return none{}, errors.Join(err, c.SetState(ctx, true))
}

// grow sets the state of a child's child.
func (c *child) grow(ctx context.Context, _ none) (none, error) { return none{}, c.SetState(ctx, true) }

// cry takes a while.
func (c *child) cry(ctx context.Context, _ none) error {
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return dohost.Add(ctx, c.Storage(), "cries", 1)
}

// traits describes a child: how often it cried, and whether it is settled.
func (c *child) traits(ctx context.Context, _ none) (traits string, err error) {
	cries, _, err := dohost.Get[int](ctx, c.Storage(), "cries")
	settled, err2 := c.State(ctx)
	return fmt.Sprintf("cried %d times, settled %t", cries, settled), errors.Join(err, err2)
}

// raise creates the child and deletes it while it cries; then it creates it and deletes it
// while another client creates it.
func raise(ctx context.Context, h *dohosttest.Host) error {
	n := nurseries.Get(h, "a")
	if _, err := ask(ctx, n, (*nursery).admit, true); err != nil {
		return err
	}
	h.Advance(1500 * time.Millisecond)
	if _, err := ask(ctx, n, (*nursery).dismiss, none{}); err != nil {
		return err
	}
	if err := checkObjects(ctx, h); err != nil {
		return err
	}
	if _, err := ask(ctx, n, (*nursery).admit, false); err != nil {
		return err
	}
	other := h.Client(func(ctx context.Context) error {
		_, err := ask(ctx, n, (*nursery).admit, false)
		return err
	})
	_, err := ask(ctx, n, (*nursery).dismiss, none{})
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
	r, err := dohost.Call(ctx, nurseries.Get(h, "a"), (*nursery).register, none{})
	if err = errors.Join(err, differ("whether the child has come", r.Came, true)); err != nil {
		return err
	}
	if !r.Listed {
		return checkObjects(ctx, h)
	}
	if err := checkObjects(ctx, h, infantObject); err != nil {
		return err // a call to a child that does not exist would make it
	}
	got, err := dohost.Call(ctx, children.Get(h, infantObject), (*child).traits, none{})
	return errors.Join(err, differ("the child", got, "cried 1 times, settled true"))
}

// newRaising has sub-agents that are created and deleted, with all of their data.
func newRaising() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{
			agent.Bind(nurseries, func(_ context.Context, a *agent.Agent[none]) (*nursery, error) { return &nursery{a}, nil }, nil,
				agent.Sub[nursery](children)),
			agent.Bind(children, func(_ context.Context, a *agent.Agent[bool]) (*child, error) { return &child{a}, nil }, nil,
				agent.Sub[child](children), agent.OnSchedule(cry, (*child).cry)),
		},
		Places: []string{"handed", "awaited"},
		Run:    raise,
		Check:  checkChildren,
	}
}
