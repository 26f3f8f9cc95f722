package agent

import (
	"context"
	"iter"
	"net/http"

	"github.com/dohost/dohost"
)

// Extension is what a package that builds on agents adds to a class: package chat is one. It sees what
// comes before the class's own hooks do. Fields that are nil see nothing.
type Extension[O any] struct {
	// Protocol is what its frames are called: see [dohost.Protocols]. Empty for none of its own.
	Protocol string
	// Connect is told of a connection before the frames of the wire are sent to it.
	Connect func(*O, context.Context, *Conn) error
	// Message has what is not a frame of the agent's own wire, and says whether it was its.
	Message func(*O, context.Context, *Conn, dohost.Frame) (handled bool, err error)
	// Request has HTTP requests that are not for a WebSocket, and says whether it has answered.
	Request func(*O, http.ResponseWriter, *http.Request) (handled bool)
	// Close is told, once, that a connection has ended, also of one that was turned away.
	Close func(*O, context.Context, *Conn)
	// Cancelled is told of a fiber of [StartFiber] that [CancelFiber] ends, in the segment in which that
	// does. The fiber's method may still run, and may never have begun. If it fails the fiber goes on.
	Cancelled func(*O, context.Context, FiberInfo) error
	// Look tells operators what it keeps in an agent, behind what every agent has: see [dohost.OnLook].
	Look func(context.Context, *dohost.View) iter.Seq2[dohost.Detail, error]
}

// Extend adds an extension. Those that come first see everything first.
func Extend[O any](e Extension[O]) Entry[O] {
	return func(c *class) {
		x := extension{protocol: e.Protocol, look: e.Look}
		if e.Connect != nil {
			x.connect = func(self any, ctx context.Context, conn *Conn) error { return e.Connect(self.(*O), ctx, conn) }
		}
		if e.Message != nil {
			x.message = func(self any, ctx context.Context, conn *Conn, f dohost.Frame) (bool, error) {
				return e.Message(self.(*O), ctx, conn, f)
			}
		}
		if e.Request != nil {
			x.request = func(self any, w http.ResponseWriter, r *http.Request) bool { return e.Request(self.(*O), w, r) }
		}
		if e.Close != nil {
			x.close = func(self any, ctx context.Context, conn *Conn) { e.Close(self.(*O), ctx, conn) }
		}
		if e.Cancelled != nil {
			x.cancelled = func(self any, ctx context.Context, f FiberInfo) error { return e.Cancelled(self.(*O), ctx, f) }
		}
		c.extensions = append(c.extensions, x)
	}
}

// extension is an Extension of whatever struct.
type extension struct {
	protocol string

	connect func(self any, ctx context.Context, c *Conn) error
	message func(self any, ctx context.Context, c *Conn, f dohost.Frame) (handled bool, err error)
	request func(self any, w http.ResponseWriter, r *http.Request) (handled bool)
	close   func(self any, ctx context.Context, c *Conn)

	cancelled func(self any, ctx context.Context, f FiberInfo) error
	look      func(ctx context.Context, v *dohost.View) iter.Seq2[dohost.Detail, error]
}

func (c *core) extendedConnect(ctx context.Context, conn *Conn) error {
	for _, x := range c.class.extensions {
		if x.connect == nil {
			continue
		}
		if err := x.connect(c.self, ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) extendedMessage(ctx context.Context, conn *Conn, f dohost.Frame) (handled bool, err error) {
	for _, x := range c.class.extensions {
		if x.message == nil {
			continue
		}
		if handled, err := x.message(c.self, ctx, conn, f); handled || err != nil {
			return handled, err
		}
	}
	return false, nil
}

func (c *core) extendedRequest(w http.ResponseWriter, r *http.Request) (handled bool) {
	for _, x := range c.class.extensions {
		if x.request != nil && x.request(c.self, w, r) {
			return true
		}
	}
	return false
}

func (c *core) extendedClose(ctx context.Context, conn *Conn) {
	for _, x := range c.class.extensions {
		if x.close != nil {
			x.close(c.self, ctx, conn)
		}
	}
}

func (c *core) extendedCancelled(ctx context.Context, f FiberInfo) error {
	for _, x := range c.class.extensions {
		if x.cancelled == nil {
			continue
		}
		if err := x.cancelled(c.self, ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// extendedLook tells operators what the extensions keep, and says whether more is wanted.
func (c *class) extendedLook(ctx context.Context, v *dohost.View, yield func(dohost.Detail, error) bool) bool {
	for _, x := range c.extensions {
		if x.look == nil {
			continue
		}
		for d, err := range x.look(ctx, v) {
			if !yield(d, err) || err != nil {
				return false
			}
		}
	}
	return true
}

// protocols are what agents of the class speak.
func (c *class) protocols() []string {
	all := []string{"agent"}
	for _, x := range c.extensions {
		if x.protocol != "" {
			all = append(all, x.protocol)
		}
	}
	return all
}

// Mistake makes [dohost.Open] fail with err: what a package that builds on agents has found wrong.
func Mistake[O any](err error) Entry[O] {
	return func(c *class) { c.errs = append(c.errs, err) }
}
