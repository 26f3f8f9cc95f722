// Package web serves objects over HTTP, and the tools of an operator.
//
// [Handler] is the public side:
//
//	POST /objects/{class}/{name}/{method}       calls an exposed method; argument and result are JSON
//	ANY  /objects/{class}/{name}/http/{rest...} reaches the object's own handler, at the path /{rest...}
//	ANY  /agents/{class}/{name}/{rest...}       the same, as clients of the Agents SDK have it
//	GET  /                                      a page to talk to chat agents, with Options.Page
//
// Class and name are percent-encoded, so that a name may contain a slash; a method
// that is exposed as "http" cannot be reached. Errors are a [dohost.ErrorBody]. In the
// form with /agents/ the class is written as [dohost.URLName] has it and the name is not decoded; an
// unknown class gets the status 400 and a text instead of an ErrorBody.
//
// [Admin] is the operator's side, and belongs on a listener of its own.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// Options tunes a Handler. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// Classes are the names of the classes that are served. Other classes answer as if they were not bound, except as
	// sub-agents of one that is served. Empty serves none: see [Roots]. Logger gets an error for a name that is not bound.
	Classes []string
	// NoObjects serves nothing under /objects/: neither calls of exposed methods nor the handlers of
	// objects. Agents are served.
	NoObjects bool
	// NewObjects bounds how many objects the clients of one remote address may create in a minute: requests for
	// objects that are not in memory and have nothing durable, sub-agents included. The status beyond it is 429. Zero
	// means 1,000; negative, no bound. An address is an IPv4 address or an IPv6 network of 64 bits, as the TCP
	// connection has it: all clients of a proxy are one address. The handler counts 10,000 addresses; further ones share one bound.
	NewObjects int
	// MaxBody bounds a request's body in bytes. Zero means 16 MiB; negative, no bound.
	MaxBody int64
	// CallTimeout bounds a call of an exposed method, its waiting included. A method
	// that has started continues. Zero means 60 s; negative, no bound.
	CallTimeout time.Duration
	// StepTimeout bounds each read of a body and each write of up to 64 KiB of a response, so that
	// streams may last but not stall. Zero means 30 s; negative, no bound.
	StepTimeout time.Duration
	// BodyTimeout bounds the total time that the handler waits for a body, in all its reads. Each 16 KiB
	// received give a second back, but never more than the client has used: a client that sends less than
	// 16 KiB per second runs out of time, also if it was fast before. Zero means 60 s; negative, no bound. Both bounds
	// start with the request, and hold for the bodies of refused requests too.
	BodyTimeout time.Duration
	// Hosts are the host names that the handler answers to, in addition to localhost and IP addresses. Empty
	// means any name. A listener on loopback without Tokens needs them, at least {"localhost"}: otherwise
	// any web page that is open on the machine reaches it by DNS rebinding.
	Hosts []string
	// Tokens are bearer tokens: a caller must present one of them, see [TokenIdentity]. If there are none, no caller
	// needs a token.
	Tokens []string
	// Origins are other origins with pages that may call from a browser, as "https://example.com". Logger gets an error for a text that is no
	// origin.
	Origins []string
	// CORS lets pages of all origins call agents by HTTP. For sockets see [dohost.Options].
	CORS bool
	// AgentsPrefix is the prefix of the agents' paths. Empty means /agents.
	AgentsPrefix string
	// Handlers answer the requests with paths that begin with their keys, such as "/v1/stream/", after the checks of Hosts, Tokens and
	// Origins, and within the bounds of NewObjects and of the times. The longest key counts. MaxBody does not apply. With CORS the pages of all
	// origins may send these requests, and preflights need no token; the handler sets the header of its responses.
	Handlers map[string]http.Handler
	// OwnTokens reports whether a request for one of Handlers needs none of Tokens, since the handler checks a token of its own. It is
	// called concurrently. Nil means that none does.
	OwnTokens func(*http.Request) bool
	// Page serves the page at /, for conversations with chat agents.
	Page bool
	// Questions are the page's suggestions.
	Questions Questions
	// Logger gets a line per request. Nil discards them.
	Logger *slog.Logger
	// Metrics count the responses. Nil counts nothing.
	Metrics *Metrics
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.MaxBody == 0 {
		d.MaxBody = 16 << 20
	}
	if d.CallTimeout == 0 {
		d.CallTimeout = time.Minute
	}
	if d.StepTimeout == 0 {
		d.StepTimeout = 30 * time.Second
	}
	if d.NewObjects == 0 {
		d.NewObjects = 1000
	}
	if d.BodyTimeout == 0 {
		d.BodyTimeout = time.Minute
	}
	if d.AgentsPrefix == "" {
		d.AgentsPrefix = "/agents"
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Handler serves a host's objects: see the comment of the package. Options must not change afterwards.
func Handler(h *dohost.Host, o *Options) http.Handler {
	opts := o.withDefaults()
	p := &public{host: h, opts: opts, classes: classesOf(h, opts.Classes)}
	for _, name := range opts.Classes {
		if _, ok := p.served(name); !ok {
			opts.Logger.Error("class ignored: it is not bound", "class", name)
		}
	}
	guard := newOrigins(opts.Origins, opts.Logger)
	a := newAgents(p)
	tk := newTickets()
	objects, toAgents := authorize(opts.Tokens, nil, guard.protect(p)), authorize(opts.Tokens, tk, guard.protect(a))
	if opts.CORS {
		toAgents = allowAllOrigins(authorize(opts.Tokens, tk, a))
	}
	limit := newCreateLimit(opts.NewObjects)
	mounted := map[string]http.Handler{}
	for prefix, h := range opts.Handlers {
		protected := guard.protect(h)
		if opts.CORS {
			protected = h
		}
		mounted[prefix] = passOwnTokens(opts.OwnTokens, protected, authorize(opts.Tokens, nil, protected))
		if opts.CORS {
			mounted[prefix] = passPreflights(h, mounted[prefix])
		}
	}
	route := func(w http.ResponseWriter, r *http.Request) {
		r = limit.watch(r)
		if prefix, ok := p.mount(r); ok {
			mounted[prefix].ServeHTTP(w, r)
		} else if _, ok := a.matches(r); ok {
			toAgents.ServeHTTP(w, r)
		} else {
			objects.ServeHTTP(w, r)
		}
	}
	bounded := func(next http.Handler) http.Handler {
		return boundBodies(opts.StepTimeout, opts.BodyTimeout, p.watch(a, checkHost(opts.Hosts, next)))
	}
	if !opts.Page {
		return bounded(http.HandlerFunc(route))
	}
	page := newPages(p.classes, pageFacts{Agents: "/" + strings.Join(a.prefix, "/")}, opts.Questions)
	if len(opts.Tokens) > 0 {
		page.tickets = tk
	}
	facts := authorize(opts.Tokens, nil, guard.protect(page))
	return bounded(page.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == hostPath {
			facts.ServeHTTP(w, r)
		} else {
			route(w, r)
		}
	})))
}

// public is the public handler.
type public struct {
	host    *dohost.Host
	opts    Options
	classes []dohost.Class // that are served
}

// mount returns the longest key of Options.Handlers that begins the path of a request.
func (p *public) mount(r *http.Request) (prefix string, ok bool) {
	for k := range p.opts.Handlers {
		if strings.HasPrefix(r.URL.Path, k) && (!ok || len(k) > len(prefix)) {
			prefix, ok = k, true
		}
	}
	return prefix, ok
}

// passOwnTokens sends the requests that pass, which may be nil, selects to a handler of their own.
func passOwnTokens(pass func(*http.Request) bool, own, next http.Handler) http.Handler {
	if pass == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pass(r) {
			own.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// passPreflights sends the preflights of browsers, which have no token, to a handler of their own.
func passPreflights(preflights, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			preflights.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// served returns a class that the handler serves.
func (p *public) served(name string) (dohost.Class, bool) {
	i := slices.IndexFunc(p.classes, func(c dohost.Class) bool { return c.Name() == name })
	if i < 0 {
		return dohost.Class{}, false
	}
	return p.classes[i], true
}

// classesOf returns the host's classes of these names.
func classesOf(h *dohost.Host, names []string) []dohost.Class {
	return slices.DeleteFunc(h.Classes(), func(c dohost.Class) bool { return !slices.Contains(names, c.Name()) })
}

// Roots returns the names of the classes that are used as roots: their objects do not belong to
// objects of another class. Use the result for Options.Classes.
func Roots(classes []dohost.Class) []string {
	owned := map[string]bool{}
	for _, c := range classes {
		for _, sub := range c.SubClasses() {
			owned[sub] = owned[sub] || sub != c.Name()
		}
	}
	var names []string
	for _, c := range classes {
		if !owned[c.Name()] {
			names = append(names, c.Name())
		}
	}
	return names
}

// ServeHTTP routes by the path as it was sent, so that an encoded slash stays in the name, and it refuses an empty
// name instead of redirecting.
func (p *public) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments, ok := splitPath(r.URL, "/objects/", 3)
	if !ok || p.opts.NoObjects {
		want := "want /objects/{class}/{name}/{method}, .../http/{rest}, or "
		if p.opts.NoObjects {
			want = "want "
		}
		refuse(w, http.StatusNotFound, "no_route", want+p.opts.AgentsPrefix+"/{class}/{name}"+otherListener(r))
		return
	}
	id := dohost.ID{Class: segments[0], Name: segments[1]}
	method := segments[2]
	if err := id.Validate(); err != nil {
		p.host.WriteError(w, &dohost.Error{Op: method, ID: id, Err: err, Outcome: dohost.OutcomeNotRun})
		return
	}
	if _, ok := p.served(id.Class); !ok { // before the body is read
		p.host.WriteError(w, &dohost.Error{Op: method, ID: id, Err: noClass(fmt.Sprintf("%q", id.Class)), Outcome: dohost.OutcomeNotRun})
		return
	}
	if !p.bounded(w, r, method, id) {
		return
	}
	if method == "http" {
		p.serveObject(w, r, id)
	} else {
		p.invoke(w, r, id, method)
	}
}

// bounded bounds the request's body, unless it is known to be too large.
func (p *public) bounded(w http.ResponseWriter, r *http.Request, op string, id dohost.ID) bool {
	if p.opts.MaxBody < 0 {
		return true
	}
	if r.ContentLength > p.opts.MaxBody {
		p.refuseBody(w, &dohost.Error{Op: op, ID: id, Err: &http.MaxBytesError{Limit: p.opts.MaxBody}, Outcome: dohost.OutcomeNotRun})
		return false
	}
	// Without w, because the object's goroutine must not use it.
	r.Body = http.MaxBytesReader(nil, r.Body, p.opts.MaxBody)
	return true
}

// invoke calls an exposed method.
func (p *public) invoke(w http.ResponseWriter, r *http.Request, id dohost.ID, method string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "a call needs the method POST")
		return
	}
	ctx, err := p.host.AuthorizeCall(r, id, method)
	if err != nil {
		p.host.WriteError(w, err)
		return
	}
	arg, release, err := p.host.ReadBody(r.WithContext(ctx), id)
	if err != nil {
		p.refuseBody(w, &dohost.Error{Op: method, ID: id, Err: err, Outcome: dohost.OutcomeNotRun})
		return
	}
	defer release() // also after a panic
	if p.opts.CallTimeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.CallTimeout)
		defer cancel()
	}
	result, err := p.host.Invoke(ctx, id, method, arg)
	release() // before the client reads the result
	if err != nil {
		p.host.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = p.host.WriteBody(w, result) // the client may have disconnected; the call has been made
}

// otherListener names the right listener for an operator's request.
func otherListener(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		return "; the admin listener, --admin, serves operators"
	}
	return ""
}

// serveObject passes the request to the object, which sees the path after "http".
func (p *public) serveObject(w http.ResponseWriter, r *http.Request, id dohost.ID) {
	_, rest, _ := cutSegments(r.URL.EscapedPath(), "/objects/", 3)
	path, err := url.PathUnescape(rest)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_path", err.Error())
		return
	}
	p.deliver(w, r, id, "/"+path, "/"+rest)
}

// deliver passes the request to the object, with another path.
func (p *public) deliver(w http.ResponseWriter, r *http.Request, id dohost.ID, path, raw string) {
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = path, raw
	inner.RequestURI = inner.URL.RequestURI()
	p.host.ServeObject(w, inner, id)
}

// refuseBody answers a request with a body that cannot be read. It ends the connection if the body was too large or too
// slow, instead of reading the rest.
func (p *public) refuseBody(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, "slow_body", "the request body arrived too slowly")
		return
	}
	p.host.WriteError(w, err)
}
