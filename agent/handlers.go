package agent

import (
	"context"
	"net/http"

	"github.com/dohost/dohost"
)

// Handlers are the functions and the properties of a class of agents of type O with a state S. All fields are optional.
type Handlers[O, S any] struct {
	// Initial is the first state of an agent without one. It is written when it is first read. Nil means that an agent
	// has no state until one is set. A state that is not JSON is an error of [dohost.Open].
	Initial *S

	// Authorize decides about each request of a client for an agent of the class, before the
	// agent is woken: see [dohost.Handlers]. The host calls it for connections, HTTP requests,
	// transcripts, and calls over HTTP, including those for a sub-agent of the agent.
	//
	// With [dohost.RightsReadOnly] rights a client can connect, send requests and call methods. The agent
	// refuses its changes of the state and of a conversation, over a connection, over HTTP and by
	// methods, and its requests create no sub-agents. OnRequest, OnMessage and the other effects of
	// methods are not restricted; there [dohost.AccessFrom] returns the rights.
	Authorize func(context.Context, *dohost.AccessRequest) (dohost.Access, error)

	// OnStart runs whenever the agent wakes, after the recovery hooks and before any event. If it fails, the event
	// that woke the agent fails, and the next event tries again: see [dohost.Bind]. The alarm tries seven times;
	// after that its work waits for another event. Interrupted fibers that resume without a hook do so when OnStart
	// has succeeded.
	OnStart func(*O, context.Context) error

	// OnRequest handles HTTP requests other than WebSocket upgrades, as the OnHTTP of [dohost.Handlers] does. Without it
	// the agent answers them with 404.
	OnRequest func(*O, http.ResponseWriter, *http.Request)

	// OnAccept chooses the properties of a new connection, before any frame is sent to it. It does not
	// authorize the client: Authorize did so before the agent was woken, and its Access is in the
	// request's context.
	OnAccept func(*O, *http.Request) ConnOptions

	// OnConnect is called with a new connection, after the frames of the protocol. If it fails,
	// the client gets the error's text, and the agent closes the connection: with the code of a
	// [*dohost.CloseError], or 1011.
	OnConnect func(*O, context.Context, *Conn, *http.Request) error

	// OnMessage handles frames that are not part of the wire protocol. Without it they are ignored.
	OnMessage func(*O, context.Context, *Conn, dohost.Frame) error

	// OnClose is called once when a connection has ended. It is not called for a refused connection, nor for a
	// connection that ended with an incarnation: see [dohost.CloseRestart].
	OnClose func(*O, context.Context, *Conn, dohost.Closing) error

	// Validate refuses changes of the state: if it returns an error, the state does not change. It must not change
	// anything itself. from is the connection that sent the change, or nil for a change by the agent. The client
	// gets an error without the reason.
	Validate func(o *O, ctx context.Context, next S, from *Conn) error

	// OnStateChanged is called for each change of the state, as a separate event, once the change is durable. By
	// then the state may have changed again. from is as in Validate. The agent reports the hook's error to the
	// log.
	OnStateChanged func(o *O, ctx context.Context, s S, from *Conn) error

	// OnInterrupted is called for each fiber of [RunFiber] that was interrupted, the oldest first. When it returns
	// nil, the fiber's row is deleted in the batch of the hook's last writes, or in the next one if that is full.
	// When it fails, or its incarnation ends, it is called again, after 30 s doubling to 5 min, with up to 25 % of
	// jitter, at most five times and for at most a day; then the fiber is dead: see [FiberDead]. The first call runs
	// in the constructor, where it has 10 s (its ctx ends then), before other events; later calls are separate tasks.
	// Without an OnInterrupted such fibers are reported and deleted.
	OnInterrupted func(*O, context.Context, *InterruptedRun) error

	// OnRecovery decides about interrupted fibers of [StartFiber]. One call gets all fibers that may resume, the
	// oldest first; fibers that were interrupted too often have already failed. The hook resumes them in any order
	// ([InterruptedFiber.Resume]) or ends them. When the hook returns nil, fibers without a decision fail in the
	// batch of the hook's last writes (or in later batches, if the checkpoints are too large for one). Without an
	// OnRecovery each fiber is resumed, the oldest first.
	//
	// If the hook fails, or its incarnation ends, it is called again with the fibers that are still open, after 30 s
	// doubling to 5 min, with up to 25 % of jitter (the same for all fibers of a call), at most five times and for at
	// most a day; then they are dead: see [FiberDead]. Fibers that are interrupted in the meantime get separate
	// calls. The first call runs in the constructor, before other events and after OnInterrupted, with 10 s for both
	// hooks (their ctx ends then). Later calls are separate tasks, one at a time. In the constructor, waiting for a
	// resumed fiber is useless: it has not begun.
	OnRecovery func(*O, context.Context, []*InterruptedFiber) error

	// OnFiberEnded is called for each fiber of [StartFiber] that has completed or failed: in its method, in recovery,
	// or by [Fibers.SetStatus]. FiberInfo has the status, the result or the error, and the last checkpoint. It is
	// called for failures too, since no caller waits for them. It is not called for a cancelled fiber, because the
	// caller of [Fibers.Cancel] knows about it, nor if the fiber was restarted before the call.
	//
	// It is called in a task, once the fiber's end is durable, and at least once: the record of the call is one
	// batch with the hook's last writes. Until then the fiber can be neither deleted nor expired. If it fails, or
	// its incarnation ends, it is called again, after 30 s doubling to 5 min, with up to 25 % of jitter, at most
	// five times and for at most a day. After that the agent gives up and reports "fiber:notified" with the outcome
	// "not notified"; the fiber keeps its status. The hook may restart the fiber with [Fibers.Restart].
	//
	// If the disk is full, the row of an ended fiber is deleted and written again when there is space. If the
	// incarnation ends before that, the hook is not called.
	OnFiberEnded func(*O, context.Context, FiberInfo) error

	// OnSub is called for each request for a sub-agent, before the sub-agent gets the request. OnSub may
	// change the request. If OnSub returns false, it has answered the request, and the sub-agent gets
	// nothing.
	OnSub func(*O, http.ResponseWriter, *http.Request, SubRequest) bool

	// Extensions are the extensions of packages that work in objects of any class, such as package ledger: see
	// [dohost.Handlers]. An extension that needs an agent is an entry: see [Extend].
	Extensions []dohost.ClassExtension

	// Options tunes the agents.
	Options Options
}

// bind adds the handlers to a class.
func (h *Handlers[O, S]) bind(c *class) {
	c.setOptions(h.Options)
	c.objectExtensions = h.Extensions
	if h.Initial != nil {
		raw, err := marshal(*h.Initial)
		if err != nil {
			c.mistake("Handlers.Initial: %w", err)
		}
		c.initial = raw
	}
	c.authorize = h.Authorize
	if m := h.OnStart; m != nil {
		c.start = func(self any, ctx context.Context) error { return m(self.(*O), ctx) }
	}
	if m := h.OnRequest; m != nil {
		c.request = func(self any, w http.ResponseWriter, r *http.Request) { m(self.(*O), w, r) }
	}
	if m := h.OnAccept; m != nil {
		c.accepted = func(self any, r *http.Request) ConnOptions { return m(self.(*O), r) }
	}
	c.connect, c.message, c.closed = hook2Of(h.OnConnect), hook2Of(h.OnMessage), hook2Of(h.OnClose)
	c.validate, c.changed = stateHook(h.Validate), stateHook(h.OnStateChanged)
	c.interrupted, c.recovery, c.ended = hookOf(h.OnInterrupted), hookOf(h.OnRecovery), hookOf(h.OnFiberEnded)
	if m := h.OnSub; m != nil {
		c.beforeSub = func(self any, w http.ResponseWriter, r *http.Request, s SubRequest) bool {
			return m(self.(*O), w, r, s)
		}
	}
}

// hook is a hook with one argument for a struct of any type, hook2 one with two arguments.
type (
	hook[A any]     func(self any, ctx context.Context, a A) error
	hook2[A, B any] func(self any, ctx context.Context, a A, b B) error
)

// hookOf returns m for a struct of any type; nil if m is nil.
func hookOf[O, A any](m func(*O, context.Context, A) error) hook[A] {
	if m == nil {
		return nil
	}
	return func(self any, ctx context.Context, a A) error { return m(self.(*O), ctx, a) }
}

// hook2Of is hookOf for two arguments.
func hook2Of[O, A, B any](m func(*O, context.Context, A, B) error) hook2[A, B] {
	if m == nil {
		return nil
	}
	return func(self any, ctx context.Context, a A, b B) error { return m(self.(*O), ctx, a, b) }
}

// setOptions sets the class's options.
func (c *class) setOptions(o Options) {
	if o.KeepAlive < 0 {
		c.mistake("Options.KeepAlive is %v: want 0 for the default, or more", o.KeepAlive)
	}
	if o.StuckAfter < 0 {
		c.mistake("Options.StuckAfter is %v: want 0 for the default, or more", o.StuckAfter)
	}
	c.options = o.withDefaults()
}
