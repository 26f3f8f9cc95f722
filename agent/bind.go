package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// class is the part of an agent that all agents of a class share. Hooks get the agent's struct as self.
type class struct {
	name    string // as it is on the wire
	state   reflect.Type
	object  reflect.Type
	options Options
	initial json.RawMessage // nil if there is none
	methods map[string]method
	kinds   map[string]kind
	subs    map[string]sub // by their names on the wire
	exposed []any          // dohost.Entry[O]

	extensions       []extension
	shared           []*sharedExtension
	objectExtensions []dohost.ClassExtension // of the agent's object

	callbacks   map[string]callback
	workIndexes []*workIndex

	beforeSub   func(self any, w http.ResponseWriter, r *http.Request, s SubRequest) bool
	start       func(self any, ctx context.Context) error
	request     func(self any, w http.ResponseWriter, r *http.Request)
	accepted    func(self any, r *http.Request) ConnOptions
	authorize   func(context.Context, *dohost.AccessRequest) (dohost.Access, error)
	connect     hook2[*Conn, *http.Request]
	message     hook2[*Conn, dohost.Frame]
	closed      hook2[*Conn, dohost.Closing]
	validate    hook2[json.RawMessage, *Conn]
	interrupted hook[*InterruptedRun]
	recovery    hook[[]*InterruptedFiber]
	ended       hook[FiberInfo]
	changed     hook2[json.RawMessage, *Conn]

	errs []error
}

func (c *class) mistake(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// constructingKey is the context key of the core of an agent whose constructor runs.
type constructingKey struct{}

// Options tunes the agents of a class. The zero value means the defaults.
type Options struct {
	// KeepAlive is the period of the persistent heartbeat: an agent that is kept alive, or has fibers, checks
	// its work that often. It is also the first delay before a failed fiber hook is called again; that delay is
	// never more than 5 min, plus up to 25 % of jitter. Zero means 30 s; negative is an error.
	KeepAlive time.Duration
	// StuckAfter is the time after which a running interval schedule counts as stuck and is started again. Zero
	// means 30 s; negative is an error.
	StuckAfter time.Duration
	// MaxInterruptions bounds the starts of one run of a schedule or a queue item, if the end of the
	// incarnation cuts off each start. After that the item, or a schedule that does not recur,
	// becomes a dead letter: see [DeadLetters.List]. Zero means 5; negative means no bound.
	MaxInterruptions int
}

func (o Options) withDefaults() Options {
	o.KeepAlive = cmp.Or(o.KeepAlive, 30*time.Second)
	o.StuckAfter = cmp.Or(o.StuckAfter, 30*time.Second)
	o.MaxInterruptions = cmp.Or(o.MaxInterruptions, 5)
	return o
}

// Entry is a named part of a class of agents of type O: a method that clients may call, a kind of fibers, a callback, a
// class of sub-agents, or an extension.
type Entry[O any] struct {
	_    [0]*O // an entry of one class does not convert to an entry of another
	bind func(*class)
}

// Bind makes a class of agents. The constructor gets the agent, and its struct embeds it. The constructor runs
// when the agent wakes, before recovery and OnStart. h has the handlers of all events; nil means none. The entries are
// the named parts of the class. Bind copies h.
//
// [dohost.Open] returns the errors in the arguments: a nil constructor, a zero Entry, an entry without a name or a
// method, a name given twice, and those that the fields of [Handlers] and [Options] document.
func Bind[O, S any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], construct func(context.Context, *Agent[S]) (*O, error), h *Handlers[O, S], entries ...Entry[O]) dohost.Class {
	c := &class{
		name: dohost.URLName(string(ns)), state: reflect.TypeFor[S](), object: reflect.TypeFor[*O](),
		options: Options{}.withDefaults(), methods: map[string]method{}, kinds: map[string]kind{}, subs: map[string]sub{},
	}
	if construct == nil {
		c.mistake("Bind without a constructor")
	}
	if h != nil {
		h.bind(c)
	}
	for i, e := range entries {
		if e.bind == nil {
			c.mistake("entry %d is the zero Entry", i)
			continue
		}
		e.bind(c)
	}
	c.bindShared()
	newObject := func(ctx context.Context, st *dohost.State) (*O, error) {
		a := &Agent[S]{}
		a.core.init(st, c)
		if c.observesRows() {
			ctx = context.WithValue(ctx, constructingKey{}, &a.core)
		}
		o, err := construct(ctx, a)
		if err != nil {
			return nil, err
		}
		if o == nil || P(o).base() != &a.core {
			return nil, fmt.Errorf("agent: the constructor of %q must return an object that embeds the Agent passed to it", ns)
		}
		a.core.self = o
		return o, a.core.wake(ctx)
	}
	of := func(o *O) *core { return P(o).base() }
	subs := c.subObjects()
	var exposed []dohost.Entry[O]
	for _, e := range c.exposed {
		exposed = append(exposed, e.(dohost.Entry[O]))
	}
	return dohost.InvalidClass(dohost.Bind(ns, newObject, &dohost.Handlers[O]{
		Authorize: c.authorize,
		OnAlarm:   func(o *O, ctx context.Context, info dohost.AlarmInfo) error { return of(o).onAlarm(ctx, info) },
		OnHTTP:    func(o *O, w http.ResponseWriter, r *http.Request) { of(o).serve(w, r) },
		OnSocket: &dohost.SocketHandlers[O]{
			Message: func(o *O, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
				return of(o).clients.receive(ctx, &Conn{s}, f)
			},
			Closed: func(o *O, ctx context.Context, s *dohost.Socket, how dohost.Closing) error {
				return of(o).clients.disconnected(ctx, &Conn{s}, how)
			},
		},
		OnInspect: c.inspect,
		OnAdmin: func(o *O, ctx context.Context, r *dohost.AdminRequest) (bool, error) {
			return of(o).onAdmin(ctx, r)
		},
		Extensions: c.objectExtensions,
		OnRowWrite: onRowWrite(c, of),
		Private:    func(name string) bool { return strings.HasPrefix(name, subPrefix) },
		SubObjects: &subs,
		Protocols:  c.protocols(),
	}, exposed...), c.errs...)
}

// onRowWrite returns the hook of a class after each write of a row; nil if the class does not need it.
func onRowWrite[O any](c *class, of func(*O) *core) func(*O, context.Context, *dohost.RowWrite) error {
	if !c.observesRows() {
		return nil
	}
	return func(o *O, ctx context.Context, w *dohost.RowWrite) error {
		if o != nil {
			return of(o).rowWritten(ctx, w)
		}
		constructing, ok := ctx.Value(constructingKey{}).(*core)
		if !ok {
			return fmt.Errorf("agent: a constructor writes with a context that is not derived from its own: %w", dohost.ErrMisuse)
		}
		return constructing.rowWritten(ctx, w)
	}
}

// maxName bounds the names of fibers, kinds and callbacks, and the keys and ids that callers choose,
// in bytes.
const maxName = 256

// reservedPrefix begins the names of fibers and collections that programs cannot use.
const reservedPrefix = "dohost."
