package agent

import (
	"context"
	"log/slog"

	"github.com/dohost/dohost"
)

// Agent is the base that an agent's struct embeds. S is the type of its state, which is stored as JSON. Unless
// documented otherwise, methods need a context that holds the object's turn, and return [dohost.ErrMisuse] or
// [dohost.ErrFenced].
type Agent[S any] struct{ promoted }

// promoted has the methods of an Agent that do not depend on the type of its state. Its field is not embedded:
// the compiler would generate every method of core for each class of agents again.
type promoted struct{ core core }

// Ref is an agent: an [*Agent], or a struct that embeds one.
type Ref interface{ base() *core }

// core is an incarnation of an agent with a state of any type.
type core struct {
	// Fixed before any of its code runs.
	obj         *dohost.State
	class       *class
	self        any    // the user's struct; set when its constructor has returned
	incarnation string // names this incarnation in the rows that it works on

	// Owned by the holder of the turn.
	keepAlives int    // KeepAlive calls that are not released
	unpin      func() // nil while keepAlives is 0
	// destroying is set while the agent is being destroyed.
	destroying bool
	deletions  []*deletion // of sub-agents
	fibers     fibers
	jobs       jobsState
	runs       uint64 // the number of the last run of a fiber, a schedule or an item
	updating   bool   // an update of rows is running: see rows.go
}

func (a *promoted) base() *core { return &a.core }

// hostPrefix is the prefix of the names of all incarnations since the host opened its store. It contains the
// store's fork, since rows of a backup or an import may come from another host.
func (c *core) hostPrefix() string { return c.obj.Epoch().HostPrefix() }

// ID returns the agent's class and name. Any goroutine.
func (a *promoted) ID() dohost.ID { return a.core.obj.ID() }

// Name returns the agent's name; for a sub-agent, its name within its parent. Any goroutine.
func (a *promoted) Name() string { return a.core.name() }

func (c *core) name() string {
	path := c.path()
	return path[len(path)-1].Name
}

// Object returns the agent's object. The agent uses the object's alarm itself: use [Schedule] instead.
// Any goroutine.
func (a *promoted) Object() *dohost.State { return a.core.obj }

// Storage returns the agent's storage. Collections with names that begin with "dohost." are reserved. Any
// goroutine; its methods need the turn.
func (a *promoted) Storage() *dohost.Storage { return a.core.store() }

func (c *core) store() *dohost.Storage { return c.obj.Storage() }

// reportError reports a hook's error, since no caller waits for it.
func (c *core) reportError(ctx context.Context, hook string, err error) {
	c.obj.Report(ctx, "agent:error", slog.String("hook", hook), slog.Any("err", err))
}

// number is the last number of a sequence of an agent.
type number struct {
	Name string
	Last uint64
}

var numbers = dohost.Collection[number]{
	Name: "dohost.numbers",
	Key:  func(n number) string { return n.Name },
}

// next returns the next number of a sequence, from 1. Times and random ids would not order rows that are
// created in the same millisecond.
func (c *core) next(ctx context.Context, of string) (uint64, error) {
	row, _, err := numbers.Get(ctx, c.store(), of)
	if err != nil {
		return 0, err
	}
	n := row.Value.Last + 1
	return n, numbers.Put(ctx, c.store(), number{of, n})
}
