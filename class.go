package dohost

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// Class is the implementation of the objects of one namespace, made by [Bind].
type Class struct {
	rt   runtime.Class
	http func(instance any, w http.ResponseWriter, r *http.Request)
	// private selects the names of objects that callers outside the host cannot reach.
	private func(name string) bool
	// authorize decides about callers from outside; nil admits all callers.
	authorize func(context.Context, *AccessRequest) (Access, error)
	// reads are the methods that callers with RightsReadOnly can call.
	reads map[string]bool
	subs  SubObjects
	// inspect and admin are the functions of OnInspect and OnAdmin.
	inspect listFunc
	admin   func(ctx context.Context, instance any, r *AdminRequest) (bool, error)
	// sockets are nil if the class has none.
	sockets   *socket.Handlers
	protocols []string // see Handlers.Protocols
	errs      []error  // the mistakes in Bind, reported by Open
}

func (c *Class) addError(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("dohost: class %q: %w", c.rt.Name, fmt.Errorf(format, args...)))
}

// InvalidClass returns c with errors. [Open] returns them in addition to the errors that [Bind] has found. It ignores nil
// errors. It is for packages that make classes from their users' input, such as package agent.
func InvalidClass(c Class, errs ...error) Class {
	c.errs = slices.Clip(c.errs)
	for _, err := range errs {
		if err != nil {
			c.addError("%w", err)
		}
	}
	return c
}

// Name returns the class's stored name.
func (c Class) Name() string { return c.rt.Name }

// ServesHTTP reports whether the class has an OnHTTP handler.
func (c Class) ServesHTTP() bool { return c.http != nil }

// HasProtocol reports whether [Handlers].Protocols names a protocol.
func (c Class) HasProtocol(protocol string) bool { return slices.Contains(c.protocols, protocol) }

// Methods returns the names of the exposed methods, in no particular order.
func (c Class) Methods() []string {
	var names []string
	for n := range c.rt.Methods {
		names = append(names, n)
	}
	return names
}

// Authorizes reports whether the class has an Authorize function.
func (c Class) Authorizes() bool { return c.authorize != nil }

// SubObjects describes how objects of a class pass requests on to objects that belong to them, as
// agents do to sub-agents. The functions must be pure.
type SubObjects struct {
	// Classes are the classes of the objects that belong to objects of this class.
	Classes []string
	// Path returns the AccessRequest.Path of an object of the class.
	Path func(ID) []ID
	// If the object id passes on a request for u, Next returns the next object and the URL that it
	// sees.
	Next func(id ID, u *url.URL) (next ID, at *url.URL, ok bool)
}

// SubClasses returns the names of the classes of the objects that belong to objects of this
// class, as [Handlers].SubObjects declared them.
func (c Class) SubClasses() []string { return c.subs.Classes }
