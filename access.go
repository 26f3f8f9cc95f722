package dohost

import (
	"context"
	"errors"
	"net/http"

	"github.com/dohost/dohost/internal/errkind"
)

// Rights are the operations on an object that a caller from outside the process may perform. The
// zero value permits none.
type Rights uint8

// The rights of a caller.
const (
	RightsNone Rights = iota
	// RightsReadOnly lets a caller send requests, connect, and call the methods that are bound by
	// [ExposeRead]. Packages agent and chat refuse the caller's changes of the state and of the
	// conversation. An OnHTTP or OnSocket handler of a class must enforce RightsReadOnly itself, by
	// [AccessFrom].
	RightsReadOnly
	// RightsReadWrite permits everything.
	RightsReadWrite
)

// Access is the identity and the rights that the class's Authorize function granted to a caller
// from outside the process. The zero value is a refusal.
type Access struct {
	// Identity is a value of the application, such as a user's id or a struct. All events of a
	// socket share it, so the application must not change it. Other code grants accesses too, as
	// the admin page of package web does: do not assume that the type is the application's.
	Identity any
	Rights   Rights
}

// AccessKind is the kind of a request to an object.
type AccessKind uint8

// The kinds of requests.
const (
	AccessHTTP   AccessKind = iota // a request to the class's OnHTTP handler
	AccessSocket                   // the same, with a WebSocket handshake
	AccessCall                     // a call of an exposed method over HTTP
)

// String returns http, socket or call.
func (k AccessKind) String() string {
	switch k {
	case AccessSocket:
		return "socket"
	case AccessCall:
		return "call"
	}
	return opHTTP
}

// AccessRequest is the input of the Authorize function of [Handlers].
type AccessRequest struct {
	// Request is the HTTP request, without its body. The function must not change it.
	Request *http.Request
	Kind    AccessKind
	// ID is the requested object. It may not exist, and a caller may request any name.
	ID ID
	// Method is the name of the method of an AccessCall.
	Method string
	// Path is the path of the object: the objects that it belongs to, from the root on, and the
	// object itself at the end. For every object except a sub-agent it is the ID alone.
	Path []ID
	// Below are the sub-agents that the request passes below the object, each with its class
	// and its name within its parent. The last one answers the request.
	Below []ID

	host *Host
}

// Exists reports whether the object has durable data. It reads the store and does not wake the
// object. It may have to wait for a write of other objects.
func (r *AccessRequest) Exists(ctx context.Context) (bool, error) { return r.host.Exists(ctx, r.ID) }

// The errors for refused requests of callers from outside the process, in addition to ErrUnauthenticated and
// ErrForbidden.
var (
	errPrivate    = errkind.New(errkind.ErrForbidden, "the object is private: clients cannot reach it")
	errReadOnly   = errkind.New(errkind.ErrForbidden, "the caller may only read")
	errTooManyNew = errkind.New(errkind.ErrOverloaded, "too many new objects")
)

// errAuthorize is the error of a request after a panic in its Authorize function, or in the check of CheckCreation.
var errAuthorize = errors.New("dohost: the authorization of the request panicked")

type accessKey struct{}

// AccessFrom returns the Access of the caller of the current request, call or frame. ok is false
// if the class has no Authorize function, and in events without a caller from outside, such as
// alarms, background tasks, and calls of other objects.
func AccessFrom(ctx context.Context) (a Access, ok bool) {
	p, _ := ctx.Value(accessKey{}).(*Access)
	if p == nil {
		return Access{}, false
	}
	return *p, true
}

// carryAccess adds a to the context, for AccessFrom. It does nothing if a is nil.
func carryAccess(ctx context.Context, a *Access) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, accessKey{}, a)
}

type grantKey struct{}

// grant is an Access that the program decided, instead of an Authorize function.
type grant struct {
	access *Access
	id     ID // the object that it is for; zero: every object
}

// GrantAccess returns a context that gives requests to [Host.ServeObject], and calls by
// [Host.AuthorizeCall] and [Host.Invoke], the Access a; the host then calls no Authorize
// functions. It is for programs that have authorized the caller by other means, such as a listener
// for operators. Every class refuses a zero Access.
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

// CheckCreation returns a context that makes [Host.ServeObject] and [Host.AuthorizeCall] call
// check for each object that is not in memory and has no durable data, after the request is
// authorized and before any object is woken. An error of check refuses the request. The client gets the text of a
// [PublicError]; for [ErrOverloaded], which means that the caller has created too many objects in a short time, 429 and
// the code "too_many_new"; and for any other error the answer that [Handlers].Authorize documents, without the text.
func CheckCreation(ctx context.Context, check func(*AccessRequest) error) context.Context {
	return context.WithValue(ctx, createKey{}, check)
}
