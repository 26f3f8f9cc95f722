package dohost

import (
	"context"
	"iter"
	"net/http"
	"slices"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// Handlers are the functions and the properties of a class of objects of type O. All fields are optional.
type Handlers[O any] struct {
	// Authorize decides about each request from outside the process for an object of the class: HTTP requests and
	// WebSockets of [Host.ServeObject], calls by [Host.AuthorizeCall], and requests that reach the object through
	// another one, such as requests for sub-agents. A class without an Authorize function serves every caller. A
	// class with one serves only callers with granted rights; a zero Access is a refusal.
	//
	// It runs on the caller's goroutine, before the object is woken and before anything is written. It
	// may run on many goroutines concurrently, and may block until ctx, the context of the request,
	// ends. The Access that it returns is in the context of the request's handler, of the called
	// method, and of all events of a WebSocket until the WebSocket ends: see [AccessFrom].
	//
	// For a request for a sub-agent the host calls the function of the root's class, with the
	// sub-agent in AccessRequest.Below, and then the function of each class on the path that has one.
	// In these functions AccessFrom(ctx) returns the Access granted so far, and their result replaces
	// it. If one of them refuses, the host wakes no object.
	//
	// It refuses with a zero Access or with an error. The client gets 401 for [ErrUnauthenticated] and
	// 403 otherwise, and never the text of the error. With a [*CloseError] the host accepts a WebSocket
	// and closes it with that code, so that the client sees the code. The host reports any other error,
	// except [ErrForbidden], to the Listener as "access:error". It reports a panic as "access:panic"
	// and answers it with 500.
	//
	// The host does not call it for calls from inside the process and from other objects. They carry
	// no Access.
	Authorize func(ctx context.Context, r *AccessRequest) (Access, error)

	// OnAlarm handles the object's alarm. A handler that fails runs again after 2 s, doubling, with up to 25 % of jitter,
	// [AlarmRuns] times in all; then the alarm is parked, see [State.ParkedAlarm]. An eviction repeats a run without
	// counting it. A constructor that fails before the handler counts as a failed run. If the delivery of an alarm wakes
	// the object and the constructor sets the alarm, the count and the delay stay: the alarm is due at its new time or
	// after the delay, whichever is later. Without an Await, a Call or a Sync in it, a handler changes its own object
	// exactly once. With them, each part of the handler between two of them is atomic, and after a crash the handler runs
	// again, on the writes of its earlier parts.
	OnAlarm func(*O, context.Context, AlarmInfo) error

	// OnHTTP handles HTTP requests to the object, as an http.Handler does. The request's context holds
	// the turn. Each flushed piece of the response waits for the writes before it; flushing, like
	// reading the request's body, is an [Await].
	//
	// The path is exactly as the client sent it. It is not cleaned, so it may contain ".." and
	// empty segments. The object's name may be any valid name, such as "../../etc" or a name
	// with U+202E. Check both before you use them as names of files.
	OnHTTP func(*O, http.ResponseWriter, *http.Request)

	// OnSocket has the handlers of the WebSockets that OnHTTP accepts with [State.Accept]. Nil means that the class has
	// no WebSockets.
	OnSocket *SocketHandlers[O]

	// OnInspect lists an object's items for operators, and their faults for [CheckDir]. It reads a [Snapshot], not the
	// object, which need not be in memory and may change during the call. If it panics or returns nil, the list ends with an error: see
	// [Host.Details].
	OnInspect func(context.Context, *Snapshot) iter.Seq2[Resource, error]

	// OnAdmin applies an operator's action to an item that OnInspect lists, as an event of the object. It returns false if
	// there is no item of that kind and id that the action applies to.
	OnAdmin func(o *O, ctx context.Context, r *AdminRequest) (bool, error)

	// Extensions add the items and the code of packages that work in objects of any class, such as the operations of package
	// ledger. Their functions are called in the order of the list. [Open] returns an error for an extension without a kind,
	// Inspect or Admin, for two extensions with one kind, and for the Err of an extension.
	Extensions []ClassExtension

	// OnRowWrite is called after each row that the object puts into one of its collections (Insert, Put, Update), and after
	// each row that it deletes (Delete, but not DeleteAll), with the context of that write. Both are one [Transaction], so
	// its writes are durable if and only if the row is, and its error rolls back the write. It must not give up the turn.
	// The object is nil while the constructor runs. It is for packages that define classes, such as package agent, whose alarm
	// must be set in the batch of a row that needs it.
	OnRowWrite func(o *O, ctx context.Context, w *RowWrite) error

	// Private selects, by name, the objects of the class that callers outside the process cannot reach: ServeObject and
	// Invoke refuse them. Other objects can reach them, also by [State.Delegate]. Private may run on many goroutines
	// concurrently. The host reports a panic to the Listener as "access:panic", and treats the object as private. A panic
	// with [http.ErrAbortHandler] reaches the caller of ServeObject or Invoke unreported: net/http cuts the connection.
	Private func(name string) bool

	// SubObjects declare that objects of the class pass requests on to other objects, by
	// [State.Delegate]. The host calls the Authorize functions of all of these objects before it
	// wakes any. They are for packages that define classes, such as package agent. SubObjects without Path or Next, or
	// with an empty class, are an error of [Open].
	SubObjects *SubObjects

	// Protocols are the names of the protocols of the WebSockets of the class's objects, for programs that list classes.
	// Objects of package agent speak "agent"; objects of package chat speak "chat" too, and objects of package pool "pool".
	Protocols []string

	// ByReference makes callers in the process and objects of this class pass arguments and results by reference instead
	// of copying them. Neither side may change a value that it has passed.
	ByReference bool
}

// bind adds the handlers to a class.
func (h *Handlers[O]) bind(c *Class) {
	c.authorize, c.inspect, c.private = h.Authorize, guardedList("OnInspect", nil, h.OnInspect), h.Private
	c.protocols, c.rt.ByReference = slices.Clone(h.Protocols), h.ByReference
	if m := h.OnAlarm; m != nil {
		c.rt.Alarm = func(ctx context.Context, instance any, info alarm.Info) error {
			o, err := instanceOf[O](instance)
			if err != nil {
				return err
			}
			return m(o, alarmPosition(info).Context(ctx), info)
		}
	}
	if m := h.OnHTTP; m != nil {
		c.http = func(instance any, w http.ResponseWriter, r *http.Request) {
			if o, err := instanceOf[O](instance); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			} else {
				m(o, w, r)
			}
		}
	}
	if m := h.OnAdmin; m != nil {
		c.admin = func(ctx context.Context, instance any, r *AdminRequest) (bool, error) {
			o, err := instanceOf[O](instance)
			if err != nil {
				return false, err
			}
			return m(o, ctx, r)
		}
	}
	if m := h.OnRowWrite; m != nil {
		c.rt.RowWritten = func(ctx context.Context, instance any, of *objectstore.Collection, w *objectstore.RowWrite, deleted bool) error {
			o, _ := instance.(*O) // nil while the constructor runs
			return m(o, ctx, &RowWrite{Collection: of.Name, Key: string(w.Key), Deleted: deleted, entries: w.Entries, former: *w.Former})
		}
	}
	if h.OnSocket != nil {
		h.OnSocket.bind(c)
		c.loadsRelays()
	}
	if s := h.SubObjects; s != nil {
		if s.Path == nil || s.Next == nil {
			c.addError("SubObjects without Path or Next")
		}
		if slices.Contains(s.Classes, "") {
			c.addError("SubObjects with an empty class")
		}
		c.subs = *s
	}
	c.extend(h.Extensions)
}
