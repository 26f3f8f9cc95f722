package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

// class is what all agents of a class share. Hooks are given the agent's struct as self.
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

	extensions []extension

	callbacks map[string]callback

	beforeSub   func(self any, w http.ResponseWriter, r *http.Request, s SubRequest) bool
	start       func(self any, ctx context.Context) error
	request     func(self any, w http.ResponseWriter, r *http.Request)
	accepted    func(self any, r *http.Request) ConnOptions
	authorize   func(context.Context, *dohost.AccessRequest) (dohost.Access, error)
	connect     func(self any, ctx context.Context, c *Conn, r *http.Request) error
	message     func(self any, ctx context.Context, c *Conn, f dohost.Frame) error
	closed      func(self any, ctx context.Context, c *Conn, how dohost.Closing) error
	validate    func(self any, ctx context.Context, raw json.RawMessage, from *Conn) error
	interrupted func(self any, ctx context.Context, i *Interrupted) error
	recovery    func(self any, ctx context.Context, fs []*InterruptedFiber) error
	ended       func(self any, ctx context.Context, info FiberInfo) error
	changed     func(self any, ctx context.Context, raw json.RawMessage, from *Conn) error

	errs []error
}

func (c *class) mistake(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// once notes that an entry is there, and that it is only there once.
func (c *class) once(name string, missing, taken bool) {
	if missing {
		c.mistake("%s without a function", name)
	}
	if taken {
		c.mistake("a second %s", name)
	}
}

// Options tunes the agents of a class. The zero value means the defaults.
type Options struct {
	// KeepAlive is how long an agent that is kept alive, or has fibers, waits before it looks
	// after itself again: its persistent heartbeat. It is also how long a hook of fibers that has
	// failed waits at first, which is never more than 5 min. Zero means 30 s; negative is an error.
	KeepAlive time.Duration
	// HungAfter is how long a run of an interval may take before it is started again,
	// although it has not ended. Zero means 30 s; negative is an error.
	HungAfter time.Duration
	// MaxStarts bounds the starts of one run of a schedule or a queue item, if the end of the
	// incarnation cuts off each start. After that the item, or a schedule that does not recur,
	// becomes a dead letter: see [DeadLetters]. Zero means 5; negative means no bound.
	MaxStarts int
}

func (o Options) withDefaults() Options {
	if o.KeepAlive == 0 {
		o.KeepAlive = 30 * time.Second
	}
	if o.HungAfter == 0 {
		o.HungAfter = 30 * time.Second
	}
	if o.MaxStarts == 0 {
		o.MaxStarts = 5
	}
	return o
}

// Entry is one thing by which an agent of type O can be entered, or that is set for its class.
type Entry[O any] func(*class)

// Tune sets the class's options.
func Tune[O any](o Options) Entry[O] {
	return func(c *class) {
		if o.KeepAlive < 0 {
			c.mistake("Options.KeepAlive is %v", o.KeepAlive)
		}
		if o.HungAfter < 0 {
			c.mistake("Options.HungAfter is %v", o.HungAfter)
		}
		c.options = o.withDefaults()
	}
}

// OnStart runs whenever the agent wakes, after the hooks of recovery and before any event. If it fails
// the event that woke the agent fails, and the next one tries again: see [dohost.Bind]. The alarm tries
// seven times; what it was for waits for another event then. Interrupted fibers that go on by
// themselves do so when it has succeeded.
func OnStart[O any](m func(*O, context.Context) error) Entry[O] {
	return func(c *class) {
		c.once("OnStart", m == nil, c.start != nil)
		c.start = func(self any, ctx context.Context) error { return m(self.(*O), ctx) }
	}
}

// OnRequest handles HTTP requests that are not for a WebSocket, as [dohost.OnHTTP] does.
// Without one they are answered 404.
func OnRequest[O any](m func(*O, http.ResponseWriter, *http.Request)) Entry[O] {
	return func(c *class) {
		c.once("OnRequest", m == nil, c.request != nil)
		c.request = func(self any, w http.ResponseWriter, r *http.Request) { m(self.(*O), w, r) }
	}
}

// Bind makes a class of agents. The constructor gets the agent, which its struct embeds. It
// runs when the agent wakes, before recovery and [OnStart]. What is wrong with the entries is
// an error of [dohost.Open].
func Bind[O, S any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], construct func(context.Context, *Agent[S]) (*O, error), entries ...Entry[O]) dohost.Class {
	c := &class{
		name: dohost.Kebab(string(ns)), state: reflect.TypeFor[S](), object: reflect.TypeFor[*O](),
		options: Options{}.withDefaults(), methods: map[string]method{}, kinds: map[string]kind{}, subs: map[string]sub{},
	}
	if construct == nil {
		c.mistake("Bind without a constructor")
	}
	for i, e := range entries {
		if e == nil {
			c.mistake("entry %d is nil", i)
			continue
		}
		e(c)
	}
	birth := func(ctx context.Context, st *dohost.State) (*O, error) {
		a := &Agent[S]{core{obj: st, class: c}}
		a.life = a.process() + ulid.Make().String()
		o, err := construct(ctx, a)
		if err != nil {
			return nil, err
		}
		if o == nil || P(o).base() != &a.core {
			return nil, fmt.Errorf("agent: the constructor of %q does not embed the agent that it was given", ns)
		}
		a.self = o
		return o, a.wake(ctx)
	}
	of := func(o *O) *core { return P(o).base() }
	exposed := []dohost.Entry[O]{dohost.HasSubObjects[O](c.subObjects())}
	if c.authorize != nil {
		exposed = append(exposed, dohost.Authorize[O](c.authorize))
	}
	for _, e := range c.exposed {
		exposed = append(exposed, e.(dohost.Entry[O]))
	}
	return dohost.Bind(ns, birth, append(exposed, dohost.OnHTTP(func(o *O, w http.ResponseWriter, r *http.Request) {
		of(o).serve(w, r)
	}), dohost.OnSocket(dohost.SocketEvents[O]{
		Message: func(o *O, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			return of(o).receive(ctx, of(o).conn(s), f)
		},
		Closed: func(o *O, ctx context.Context, s *dohost.Socket, how dohost.Closing) error {
			return of(o).disconnected(ctx, of(o).conn(s), how)
		},
	}), dohost.OnAlarm(func(o *O, ctx context.Context, info dohost.AlarmInfo) error {
		return of(o).ring(ctx, info)
	}), dohost.OnOperate(func(o *O, ctx context.Context, a dohost.Action, kind, id string) (bool, error) {
		return of(o).operate(ctx, a, kind, id)
	}), dohost.OnLook[O](c.look), dohost.Protocols[O](c.protocols()...), dohost.Private[O](func(name string) bool {
		return strings.HasPrefix(name, subPrefix)
	}), dohost.Mistake[O](errors.Join(c.errs...)))...)
}
