package dohost

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
func NewLocator(find func() *Host) Locator { return &hostLocator{find} }

// hostLocator is a pointer in a Locator, so that stubs can be compared.
type hostLocator struct{ find func() *Host }

func (s *hostLocator) host() *Host { return s.find() }
