package dohost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"

	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// hop is an object on the path of a request, with the access that the request has to it.
type hop struct {
	id     ID
	url    *url.URL // as the object sees it
	access *Access  // nil: the class has no Authorize function
}

// is reports whether a request that was passed on is the request that was authorized.
func (p hop) is(id ID, u *url.URL) bool {
	return p.id == id && p.url.EscapedPath() == u.EscapedPath() && p.url.RawQuery == u.RawQuery
}

// hops returns the object id, and the objects that a request for it is passed on to.
func (h *Host) hops(id ID, u *url.URL) []hop {
	all := []hop{{id: id, url: u}}
	for len(all) < maxDelegations {
		last := all[len(all)-1]
		next := h.classes[last.id.Class].subs.Next
		if next == nil {
			break
		}
		id, at, ok := next(last.id, last.url)
		if _, bound := h.classes[id.Class]; !ok || !bound {
			break
		}
		all = append(all, hop{id: id, url: at})
	}
	return all
}

// authorize decides about a request for an object, and for the objects that the request is passed
// on to. inherited is the access at the object that passes the request on, or nil.
//
// Errors: an [*Error] with one of the errors of Authorize, or of a check for creation.
func (h *Host) authorize(r *http.Request, id ID, kind AccessKind, method string, inherited *Access) ([]hop, error) {
	ctx := r.Context()
	check, _ := ctx.Value(createKey{}).(func(*AccessRequest) error)
	given := grantFrom(ctx, ID{})
	if !h.authorizes && check == nil && given == nil {
		return []hop{{id: id, url: r.URL}}, nil
	}
	all := []hop{{id: id, url: r.URL}}
	if kind != AccessCall {
		all = h.hops(id, r.URL)
	}
	questions := h.questions(r, all, kind, method)
	access := inherited
	for i, q := range questions {
		var err error
		switch f := h.classes[q.ID.Class].authorize; {
		case given != nil:
			access, err = given, permits(given)
		case f != nil:
			access, err = h.decide(carryAccess(ctx, access), f, q)
		}
		if err != nil {
			return nil, &Error{Op: opOf(q), ID: q.ID, Err: err, Outcome: OutcomeNotRun}
		}
		all[i].access = access
	}
	if check == nil {
		return all, nil
	}
	for _, q := range questions {
		if err := h.mayCreate(check, q); err != nil {
			return nil, &Error{Op: opOf(q), ID: q.ID, Err: err, Outcome: OutcomeNotRun}
		}
	}
	return all, nil
}

func opOf(q *AccessRequest) string {
	if q.Kind == AccessCall {
		return q.Method
	}
	return opHTTP
}

// questions returns the input of the Authorize function of each object on the path of a
// request.
func (h *Host) questions(r *http.Request, all []hop, kind AccessKind, method string) []*AccessRequest {
	bare := r.WithContext(r.Context())
	bare.Body = http.NoBody
	var below []ID
	qs := make([]*AccessRequest, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		path := []ID{all[i].id}
		if of := h.classes[all[i].id.Class].subs.Path; of != nil {
			path = of(all[i].id)
		}
		qs[i] = &AccessRequest{Request: bare, Kind: kind, ID: all[i].id, Method: method, Path: path, Below: below, host: h}
		below = append([]ID{path[len(path)-1]}, below...)
	}
	return qs
}

// decide calls an Authorize function.
func (h *Host) decide(ctx context.Context, f func(context.Context, *AccessRequest) (Access, error), q *AccessRequest) (*Access, error) {
	var a Access
	err := h.ask(q.ID, errAuthorize, func() (err error) {
		a, err = f(ctx, q)
		return h.refusalOf(q, err)
	})
	if err != nil {
		return nil, err
	}
	return &a, permits(&a)
}

// ask calls code of the application that decides about a request for id, and returns its error. It reports a panic and
// returns panicked, unless the panic aborts the request.
func (h *Host) ask(id ID, panicked error, f func() error) (err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			panic(p)
		} else if p != nil {
			h.rt.Report(id, "access:panic", slog.Attr{Key: "panic", Value: truncatedValue(slog.AnyValue(p))}, slog.String("stack", string(debug.Stack())))
			err = panicked
		}
	}()
	return f()
}

// refusalOf returns the error of an Authorize function, or of a check for creation, without the text, which is not for
// clients. It reports an unknown error.
func (h *Host) refusalOf(q *AccessRequest, err error) error {
	if err == nil {
		return nil
	}
	if c, ok := errors.AsType[*CloseError](err); ok && c != nil {
		if q.Kind != AccessSocket {
			return ErrForbidden
		}
		return c
	}
	for _, known := range []error{ErrUnauthenticated, ErrForbidden} {
		if errors.Is(err, known) {
			return known
		}
	}
	h.rt.Report(q.ID, "access:error", slog.String("err", truncatedText(err.Error(), maxReportText)))
	return ErrForbidden
}

// permits returns an error for an access without rights.
func permits(a *Access) error {
	if a.Rights != RightsReadOnly && a.Rights != RightsReadWrite {
		return ErrForbidden
	}
	return nil
}

// mayCreate calls check for an object that does not exist. It does not wait for the disk: an object counts as
// existing before its first write is durable. If the store cannot be read, mayCreate permits the request, which then
// fails in the object.
func (h *Host) mayCreate(check func(*AccessRequest) error, q *AccessRequest) error {
	if h.IsLive(q.ID) {
		return nil
	}
	if there, err := h.rt.Store().HasRows(q.ID); err != nil || there {
		return nil
	}
	return h.ask(q.ID, errAuthorize, func() error {
		err := check(q)
		if isPublic(err) {
			return err
		}
		if errors.Is(err, ErrOverloaded) {
			return errTooManyNew
		}
		return h.refusalOf(q, err)
	})
}

// refuse answers a request that was not authorized, to pages that may connect to the class. It closes a
// WebSocket with a code only if the class has chosen one. Otherwise the handshake fails, and the client
// may repeat it.
func (h *Host) refuse(w http.ResponseWriter, r *http.Request, class string, err error) {
	c, ok := errors.AsType[*CloseError](err)
	if !ok || c == nil {
		h.WriteError(w, err)
		return
	}
	how := Closing{Code: c.Code, Reason: c.Reason}
	if !sendable(c.Code) || len(c.Reason) > maxReason {
		how = Closing{Code: closePolicy, Reason: "access denied"}
	}
	origins := h.origins
	if c := h.classes[class]; c.sockets != nil {
		origins = h.originsOf(c.sockets)
	}
	socket.Refuse(w, r, origins, how)
}

// IsUpgrade reports whether a request asks for a WebSocket. Handlers of classes with sockets can use it as the host
// does for [AccessRequest.Kind].
func IsUpgrade(r *http.Request) bool { return socket.IsUpgrade(r) }

// kindOf returns the kind of a request to an object. A class without sockets answers each request over HTTP.
func (h *Host) kindOf(r *http.Request, id ID) AccessKind {
	if h.classes[id.Class].sockets != nil && IsUpgrade(r) {
		return AccessSocket
	}
	return AccessHTTP
}

// AuthorizeCall decides whether the sender of the request r may call an exposed method, before its
// argument is read. The returned context is the context of r, and lets [Host.Invoke] call methods
// of this object with the granted Access.
//
// Errors: an [*Error] with [ErrNotFound] for an unknown class or method, [ErrForbidden] for a private object, and for
// a method that is not exposed by [ExposeRead] if the access is read-only, and the errors of Authorize and
// [CheckCreation].
func (h *Host) AuthorizeCall(r *http.Request, id ID, method string) (context.Context, error) {
	refused := func(err error) (context.Context, error) {
		return nil, &Error{Op: method, ID: id, Err: err, Outcome: OutcomeNotRun}
	}
	if err := id.Validate(); err != nil {
		return refused(err)
	}
	if _, bound := h.classes[id.Class]; !bound {
		return refused(fmt.Errorf("%w: %q", runtime.ErrNoClass, id.Class))
	}
	if err := h.reachable(id); err != nil {
		return refused(err)
	}
	all, err := h.authorize(r, id, AccessCall, method, nil)
	if err != nil {
		return nil, err
	}
	access := all[0].access
	if _, err := h.callable(id, method, access); err != nil {
		return refused(err)
	}
	ctx := withArgument(r.Context())
	if access == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, grantKey{}, grant{access, id}), nil
}

// AuthorizeHTTP decides whether the sender of the request r may send HTTP requests to an object, as [Host.ServeObject]
// does before it wakes the object. It is for handlers that answer for objects themselves, such as the handler of package
// streams. The returned context derives from the context of r, and [AccessFrom] returns the granted Access from it: the
// handler must enforce RightsReadOnly. A class without an Authorize function grants none, and admits every sender. The access
// is valid at this time: a handler with a long response must ask again.
//
// Errors: an [*Error] with [ErrNotFound] for an unknown class, [ErrForbidden] for a private object, and the errors of
// Authorize and [CheckCreation].
func (h *Host) AuthorizeHTTP(r *http.Request, id ID) (context.Context, error) {
	err := id.Validate()
	if _, bound := h.classes[id.Class]; err == nil && !bound {
		err = fmt.Errorf("%w: %q", runtime.ErrNoClass, id.Class)
	}
	if err == nil {
		err = h.reachable(id)
	}
	if err != nil {
		return nil, &Error{Op: opHTTP, ID: id, Err: err, Outcome: OutcomeNotRun}
	}
	all, err := h.authorize(r, id, AccessHTTP, "", nil)
	if err != nil {
		return nil, err
	}
	return carryAccess(r.Context(), all[0].access), nil
}
