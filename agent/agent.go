package agent

import (
	"net/http"

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

// core is an incarnation of an agent with a state of any type. It wakes the agent, keeps it alive, destroys it, and has its
// sub-agents. The rest belongs to its components: recovery uses fibers; recovery, fibers, jobs and rowWork use rows. A component
// that needs the other direction gets a function or an interface: rows calls core.nextWakeup for the time of the alarm, fibers
// calls recovery.ended, and rowWork has core as a rowOwner.
type core struct {
	incarnation
	rows     rows
	fibers   fibers
	recovery recovery
	jobs     jobs
	rowWork  rowWork
	clients  clients

	// Owned by the holder of the turn.
	unpin     func()      // nil unless the agent is kept alive
	deletions []*deletion // of sub-agents
}

// init prepares an agent for its constructor.
func (c *core) init(obj *dohost.State, of *class) {
	c.incarnation = incarnation{obj: obj, class: of, owner: obj.Epoch().String()}
	c.rows = rows{incarnation: &c.incarnation, wakeup: c.nextWakeup}
	c.fibers = fibers{incarnation: &c.incarnation, rows: &c.rows, ended: c.recovery.ended}
	c.recovery = recovery{fibers: &c.fibers}
	c.jobs = jobs{incarnation: &c.incarnation, rows: &c.rows}
	c.rowWork.init(&c.incarnation, &c.rows, c)
	c.clients = clients{&c.incarnation}
}

func (a *promoted) base() *core { return &a.core }

// ID returns the agent's class and name. Any goroutine.
func (a *promoted) ID() dohost.ID { return a.core.obj.ID() }

// Name returns the agent's name; for a sub-agent, its name within its parent. Any goroutine.
func (a *promoted) Name() string { return a.core.name() }

// Object returns the agent's object. The agent uses the object's alarm itself: use [Schedule] instead.
// Any goroutine.
func (a *promoted) Object() *dohost.State { return a.core.obj }

// Storage returns the agent's storage. Collections with names that begin with "dohost." are reserved. Any
// goroutine; its methods need the turn.
func (a *promoted) Storage() *dohost.Storage { return a.core.store() }

// serve answers the agent's HTTP requests.
func (c *core) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case c.forwardSub(w, r):
	case dohost.IsUpgrade(r):
		c.clients.accept(w, r)
	case c.extendedRequest(w, r):
	case c.class.request != nil:
		c.class.request(c.self, w, r)
	default:
		http.Error(w, "Not implemented", http.StatusNotFound)
	}
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
