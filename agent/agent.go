package agent

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dohost/dohost"
)

// Agent is what an agent's struct embeds. S is its state, which is kept as JSON. Its methods
// want a context that holds the object's turn, unless they say otherwise, and return
// [dohost.ErrNoTurn], [dohost.ErrTurnBusy] or [dohost.ErrFenced].
type Agent[S any] struct{ core }

// Ref is an agent: an [*Agent], or a struct that embeds one.
type Ref interface{ base() *core }

// core is an incarnation of an agent, whatever its state.
type core struct {
	// Fixed before any of its code runs.
	obj   *dohost.State
	class *class
	self  any    // the user's struct; set when its constructor has returned
	life  string // names this incarnation in the rows that it works on

	// Owned by whoever holds the turn.
	holds int    // who keeps the agent alive
	unpin func() // nil while nobody does
	// doom says that the agent is being destroyed, and is not gone yet.
	doom      bool
	deletions []*deletion // of sub-agents
	fibers    fibers
	jobs      jobsState
}

func (c *core) base() *core { return c }

// process begins the names of all incarnations of this opening of the host. It has the
// fork of the store: rows of a backup or of an import may come from another host.
func (c *core) process() string {
	store := c.obj.Runtime().Store()
	return fmt.Sprintf("%08x.%d-", store.Identity().Fork, store.Generation())
}

// ID returns the agent's class and name. Any goroutine.
func (c *core) ID() dohost.ID { return c.obj.ID() }

// Name returns the agent's name; of a sub-agent the one that its parent knows. Any goroutine.
func (c *core) Name() string {
	path := c.path()
	return path[len(path)-1].Name
}

// Object returns the object that the agent is. Its alarm is the agent's own: use [Schedule].
// Any goroutine.
func (c *core) Object() *dohost.State { return c.obj }

// Storage returns the agent's storage, in which only collections whose names begin with
// "dohost." are not its own. Any goroutine; its methods want the turn.
func (c *core) Storage() *dohost.Storage { return c.obj.Storage() }

func (c *core) store() *dohost.Storage { return c.obj.Storage() }

// report tells the host's Listener, once all that the event has written before is durable: what
// is lost is not told.
func (c *core) report(ctx context.Context, event string, attrs ...slog.Attr) {
	_ = c.obj.Emit(ctx, func(err error) { // after the end of the incarnation there is nothing to tell
		if err == nil {
			c.obj.Runtime().Report(c.ID(), event, attrs...)
		}
	})
}

// failed tells of a hook's error, which has nobody else to go to.
func (c *core) failed(ctx context.Context, hook string, err error) {
	c.report(ctx, "agent:error", slog.String("hook", hook), slog.Any("err", err))
}

// number counts something of an agent.
type number struct {
	Name string
	Last uint64
}

var numbers = dohost.Collection[number]{
	Name: "dohost.numbers",
	Key:  func(n number) string { return n.Name },
}

// next returns the next number of a sequence, from 1. Times and random ids would not tell the
// order of what comes in one millisecond.
func (c *core) next(ctx context.Context, of string) (uint64, error) {
	row, _, err := numbers.Get(ctx, c.store(), of)
	if err != nil {
		return 0, err
	}
	n := row.Value.Last + 1
	return n, numbers.Put(ctx, c.store(), number{of, n})
}
