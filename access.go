package dohost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Rights are the operations on an object that a caller from outside the process may perform. The
// zero value permits none.
type Rights uint8

// The rights of a caller.
const (
	NoRights Rights = iota
	// ReadOnly lets a caller send requests, connect, and call the methods of [ExposeRead]. Packages
	// agent and chat refuse its changes of the state and of the conversation. In an [OnHTTP] or
	// [OnSocket] handler of its own, a class enforces it by [AccessFrom].
	ReadOnly
	// ReadWrite permits everything.
	ReadWrite
)

// Access is the identity and the rights of a caller from outside the process, as the class's
// [Authorize] function has granted them. The zero value is a refusal.
type Access struct {
	// Identity is the application's: a user's id, or a struct. It is shared by all events of a
	// socket, so it must not be changed.
	Identity any
	Rights   Rights
}

// AccessKind is the way on which a request reaches an object.
type AccessKind uint8

// The ways on which requests reach objects.
const (
	HTTPAccess   AccessKind = iota // a request to the class's OnHTTP handler
	SocketAccess                   // the same, with a WebSocket handshake
	CallAccess                     // a call of an exposed method over HTTP
)

// String returns http, socket or call.
func (k AccessKind) String() string {
	switch k {
	case SocketAccess:
		return "socket"
	case CallAccess:
		return "call"
	}
	return opHTTP
}

// AccessRequest is the question that an [Authorize] function answers.
type AccessRequest struct {
	// Request is the HTTP request, without its body. It must not be changed.
	Request *http.Request
	Kind    AccessKind
	// ID is the object. It may not exist, and an object of any name may be asked for.
	ID ID
	// Method is the name of the method of a CallAccess.
	Method string
	// Path is the object as its users know it: the objects that it belongs to, from the root on,
	// and itself at the end. For all but sub-agents that is the ID alone.
	Path []ID
	// Below are the sub-agents below the object that the request goes to, each by its class and
	// the name that its parent knows. The last one answers the request.
	Below []ID

	host *Host
}

// Exists reports whether the object has anything durable. It reads the store and does not wake
// the object. It may wait for a write of other objects that is in progress.
func (r *AccessRequest) Exists(ctx context.Context) (bool, error) { return r.host.Exists(ctx, r.ID) }

// Authorize makes f decide about each request from outside the process for an object of the class:
// HTTP requests and WebSockets of [Host.ServeObject], calls by [Host.AuthorizeCall], and requests
// that reach the object through another one, as those for sub-agents do. A class without an
// Authorize function serves every caller. One that has it serves those alone to whom f grants
// rights: a zero Access is a refusal.
//
// f runs on the caller's goroutine, before the object is woken and before anything is written. It
// may run on many goroutines at once, and may block for as long as ctx, the request's, allows.
// The Access that it returns is in the context of the request's handler, of the called method, and
// of all events of a WebSocket for as long as that is connected: see [AccessFrom].
//
// A request for a sub-agent is decided by the function of the root's class, which sees the
// sub-agent in AccessRequest.Below, and then by the function of each class on the way that has
// one. These find the Access granted so far by AccessFrom(ctx), and theirs replaces it. If any of
// them refuses, no object is woken.
//
// f refuses with a zero Access or with an error. The client gets 401 for [ErrUnauthenticated] and
// 403 otherwise, and never the text of the error; one that is neither ErrUnauthenticated nor
// [ErrForbidden] is reported to the Listener as "access:error". With a [*CloseError] a WebSocket is
// accepted and closed with that code, so that clients which would try again can see it. A panic is
// reported as "access:panic" and answered with 500.
//
// Calls from inside the process, and of other objects, are not asked about, and carry no Access.
func Authorize[O any](f func(ctx context.Context, r *AccessRequest) (Access, error)) Entry[O] {
	return func(c *Class) {
		switch {
		case f == nil:
			c.mistake("Authorize without a function")
		case c.authorize != nil:
			c.mistake("a second Authorize")
		}
		c.authorize = f
	}
}

// Authorizes reports whether the class has an [Authorize] function.
func (c Class) Authorizes() bool { return c.authorize != nil }

// These errors say that a caller from outside the process may not do what it has asked for.
var (
	// ErrUnauthenticated: the caller has not proved its identity.
	ErrUnauthenticated = errors.New("dohost: the request has no valid credentials")
	// ErrForbidden: the caller has no rights to the object.
	ErrForbidden = errors.New("dohost: access denied")
	// ErrTooManyNew: the caller has created too many objects in a short time: see [CheckCreation].
	ErrTooManyNew = errors.New("dohost: too many new objects")
	// ErrReadOnly: the caller has no right to change the object.
	ErrReadOnly = errors.New("dohost: the caller may only read")
)

// errAuthorize is the answer to a request whose Authorize function has panicked.
var errAuthorize = errors.New("dohost: the authorization has failed")

// CloseError is an error that names the code with which a WebSocket is closed. Clients of agents do
// not connect again after 1008 and after 4000 to 4999.
type CloseError struct {
	Code   int    // as of [Socket.Close]
	Reason string // at most 123 bytes
}

// Error names code and reason.
func (e *CloseError) Error() string { return fmt.Sprintf("close %d: %s", e.Code, e.Reason) }

type accessKey struct{}

// AccessFrom returns the Access of the caller whose request, call or frame is being handled. ok is
// false if the class has no [Authorize] function, and in events that no caller from outside has
// caused, such as alarms, background tasks, and calls of other objects.
func AccessFrom(ctx context.Context) (a Access, ok bool) {
	p, _ := ctx.Value(accessKey{}).(*Access)
	if p == nil {
		return Access{}, false
	}
	return *p, true
}

// carryAccess puts an Access, if there is one, where AccessFrom finds it.
func carryAccess(ctx context.Context, a *Access) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, accessKey{}, a)
}

type grantKey struct{}

// grant is an Access that was decided before the host was asked.
type grant struct {
	access *Access
	id     ID // whose; of all objects if it is zero
}

// GrantAccess returns a context with which requests to [Host.ServeObject], and calls by
// [Host.AuthorizeCall] and [Host.Invoke], have the Access a, and [Authorize] functions are not
// called. It is for programs that have authorized the caller by other means, such as a listener of
// operators. A zero Access is refused by every class.
func GrantAccess(ctx context.Context, a Access) context.Context {
	return context.WithValue(ctx, grantKey{}, grant{access: &a})
}

func grantFrom(ctx context.Context, id ID) *Access {
	g, ok := ctx.Value(grantKey{}).(grant)
	if !ok || g.id != (ID{}) && g.id != id {
		return nil
	}
	return g.access
}

type createKey struct{}

// CheckCreation returns a context with which requests to [Host.ServeObject], and calls by
// [Host.AuthorizeCall], ask check about each object that is not in memory and has nothing durable,
// once the request is authorized and before any object is woken. An error of check is the client's
// answer: [ErrTooManyNew] is 429.
func CheckCreation(ctx context.Context, check func(*AccessRequest) error) context.Context {
	return context.WithValue(ctx, createKey{}, check)
}

// SubObjects describes how a class passes requests on to objects that belong to its own, as agents
// do to sub-agents. The functions must be pure.
type SubObjects struct {
	// Classes are the classes of the objects that belong to those of this one.
	Classes []string
	// Path returns the objects that an object of the class belongs to, as AccessRequest.Path has
	// them.
	Path func(ID) []ID
	// Next returns the object that a request for u goes to, if the object id passes it on, and the
	// URL that it sees.
	Next func(id ID, u *url.URL) (next ID, at *url.URL, ok bool)
}

// HasSubObjects tells the host to which objects those of the class pass requests on, by
// [State.Delegate], so that [Authorize] functions are asked about all of them before any is woken.
// It is for packages that make classes, such as package agent.
func HasSubObjects[O any](s SubObjects) Entry[O] {
	return func(c *Class) {
		if c.subs.Path != nil {
			c.mistake("a second HasSubObjects")
		}
		if s.Path == nil || s.Next == nil {
			c.mistake("HasSubObjects without Path or Next")
		}
		c.subs = s
	}
}

// SubClasses returns the names of the classes of which [HasSubObjects] says that their objects
// belong to those of this class.
func (c Class) SubClasses() []string { return c.subs.Classes }
