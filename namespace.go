package dohost

import (
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Namespace is the stored name of a class. Its objects are values of type O. It is meant to be a constant:
//
//	const Counters dohost.Namespace[Counter] = "counter"
type Namespace[O any] string

// Locator finds objects. It is a [*Host], the [*State] of an object that calls another, a stand-in made by [NewLocator], or a struct that
// embeds a *Host or a stand-in. It is not nil. A Locator gives no access to its host: an object's code must not be able to close the host,
// or to end or replace other objects.
type Locator interface {
	// host returns the host as of now. Stubs call it for each call, on any goroutine.
	host() *Host
}

// NewLocator returns a stand-in for a host that is replaced now and then, as in a test. For each call, stubs call find, on any goroutine, to
// get the current host; find may block, and must be neither nil nor return nil. A call that a closed host refuses is Retryable, since find
// may return another host.
func NewLocator(find func() *Host) Locator { return &standIn{find} }

// standIn is a pointer in a Locator, so that stubs can be compared.
type standIn struct{ find func() *Host }

func (s *standIn) host() *Host { return s.find() }

// Get returns a stub for the object of that name. It does no I/O and cannot fail; the object exists once something
// has been written to it.
func (n Namespace[O]) Get(l Locator, name string) Stub[O] {
	if st, ok := l.(*State); ok { // a stub must not keep the incarnation in memory
		l = st.host()
	}
	return Stub[O]{target{at: l, id: ID{Class: string(n), Name: name}}}
}

// Stub addresses an object. It is a small value, which may be copied and kept for
// as long as its host is open.
type Stub[O any] struct{ to target }

// target is the object that a stub addresses.
type target struct {
	at Locator
	id ID
}

// ID returns the object's class and name.
func (s Stub[O]) ID() ID { return s.to.id }

// ID names an object: class and name.
type ID = runtime.ID

// ParseID reads class/name. Its error is a [*NameError].
func ParseID(s string) (ID, error) { return objectstore.ParseID(s) }
