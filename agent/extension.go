package agent

import (
	"context"
	"iter"
	"net/http"
	"slices"

	"github.com/dohost/dohost"
)

// Handle is an agent of any struct. Hooks of an [Extension] that need no struct get a Handle, since RowWritten may run before the constructor
// has returned the struct. The zero Handle refers to no agent: its methods panic.
type Handle struct{ c *core }

func (h Handle) base() *core { return h.c }

// Object returns the agent's object.
func (h Handle) Object() *dohost.State { return h.c.obj }

// Storage returns the storage of the agent's object.
func (h Handle) Storage() *dohost.Storage { return h.c.store() }

// Fibers returns the handle of the agent's fibers.
func (h Handle) Fibers() Fibers { return Fibers{&h.c.fibers} }

// Rows returns the handle of the agent's rows.
func (h Handle) Rows() Rows { return Rows{&h.c.rowWork} }

// Extension adds hooks to a class, for a package that builds on agents, such as package chat. Its hooks run
// before the class's own. Nil fields are skipped.
type Extension[O any] struct {
	// Entries are entries of the extension itself, such as its kinds of fibers.
	Entries []Entry[O]
	// Wake is called when the agent wakes, after its constructor and before OnStart, in the same batch. If it fails, the constructor has
	// failed.
	Wake func(ctx context.Context, a Handle) error
	// RowWritten is called after each row of a collection that the agent has written or deleted, also while its constructor runs: see
	// OnRowWrite in [dohost.Handlers].
	RowWritten func(ctx context.Context, a Handle, w *dohost.RowWrite) error
	// RowsParked is called after rows of a collection were parked, in the same batch: see [Rows.Parked].
	RowsParked func(ctx context.Context, a Handle, collection string, keys []string) error
	// Name is unique in a class: for two extensions with the same Name, Open returns an error with both descriptions. With an empty Name the
	// extension has no name.
	Name, Description string
	// Err is an error in the declaration of the extension, which [dohost.Open] returns. Nil means that there is none.
	Err error
	// Protocol is the name of the extension's frames: see Protocols in [dohost.Handlers]. Empty if it has none.
	Protocol string
	// Connect is called for a new connection before the agent sends the frames of the protocol to it.
	Connect func(*O, context.Context, *Conn) error
	// Connected is called for a new connection after the agent has sent the frames of the protocol to it, and before
	// OnConnect.
	Connected func(*O, context.Context, *Conn) error
	// Message handles frames that are not part of the agent's own protocol, and reports whether it did.
	Message func(*O, context.Context, *Conn, dohost.Frame) (handled bool, err error)
	// Request handles HTTP requests other than WebSocket upgrades, and reports whether it answered.
	Request func(*O, http.ResponseWriter, *http.Request) (handled bool)
	// Close is called once when a connection has ended, even if the agent refused it.
	Close func(*O, context.Context, *Conn)
	// Cancelled is called for a fiber of [StartFiber] that [Fibers.Cancel] ends, in the same batch. The fiber's
	// method may still be running, or may never have begun. If Cancelled fails, the fiber is not cancelled.
	Cancelled func(*O, context.Context, FiberInfo) error
	// Inspect yields items for operators, after the items of the agent: see OnInspect in [dohost.Handlers].
	Inspect func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error]
	// Kinds are the kinds of Inspect's items that Admin is called for. Admin applies an action to an item, and returns false if the extension has
	// no such item: several extensions may share a kind. Inspect and Admin are required with Kinds.
	Kinds []string
	Admin func(*O, context.Context, *dohost.AdminRequest) (done bool, err error)
}

// Extend adds an extension. Extensions run in the order of the entries.
func Extend[O any](e Extension[O]) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		if e.Err != nil {
			c.errs = append(c.errs, e.Err)
		}
		for _, other := range c.extensions {
			if e.Name != "" && other.name == e.Name {
				c.mistake("two of %s in one class: %s, and %s", e.Name, other.description, e.Description)
			}
		}
		for i, entry := range e.Entries {
			if entry.bind == nil {
				c.mistake("entry %d of an extension is the zero Entry", i)
				continue
			}
			entry.bind(c)
		}
		x := extension{
			name: e.Name, description: e.Description, protocol: e.Protocol, wake: e.Wake, rowWritten: e.RowWritten, rowsParked: e.RowsParked,
			inspect: e.Inspect, connect: hookOf(e.Connect), connected: hookOf(e.Connected), cancelled: hookOf(e.Cancelled),
		}
		if len(e.Kinds) > 0 && (e.Inspect == nil || e.Admin == nil) {
			c.mistake("an extension with items of kind %q has no Inspect or no Admin", e.Kinds[0])
		} else if len(e.Kinds) > 0 {
			x.kinds = slices.Clone(e.Kinds)
			x.admin = func(self any, ctx context.Context, r *dohost.AdminRequest) (bool, error) {
				return e.Admin(self.(*O), ctx, r)
			}
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
		c.extensions = append(c.extensions, x)
	}}
}

// ExtendShared adds one extension for all entries of a class that have the same name. Bind makes the extension with one call of the function
// of, with the parts of these entries in the order of the entries. It is meant for hooks that need all parts of a package in a class, such
// as all inboxes. Entries with one name must have parts of one type, and equivalent functions: Bind calls the function of the last entry.
func ExtendShared[O, P any](name string, part P, of func(parts []P) Extension[O]) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		at := slices.IndexFunc(c.shared, func(x *sharedExtension) bool { return x.name == name })
		if at < 0 {
			at = len(c.shared)
			c.shared = append(c.shared, &sharedExtension{name: name})
		}
		x := c.shared[at]
		x.parts = append(x.parts, part)
		x.bind = func() {
			parts := make([]P, len(x.parts))
			for i := range parts {
				parts[i] = x.parts[i].(P)
			}
			x.value = parts
			Extend(of(parts)).bind(c)
		}
	}}
}

// SharedParts returns the parts that [ExtendShared] entries with a name have in the class of an agent; nil if there are none. The
// caller must not change them.
func SharedParts[P any](a Ref, name string) []P {
	for _, x := range a.base().class.shared {
		if x.name == name {
			parts, _ := x.value.([]P)
			return parts
		}
	}
	return nil
}

// sharedExtension is an extension of ExtendShared before the parts are complete.
type sharedExtension struct {
	name  string
	parts []any
	value any // the parts, as a slice of their type; set by bind
	bind  func()
}

// bindShared binds the shared extensions, when all entries are bound.
func (c *class) bindShared() {
	for _, x := range c.shared {
		x.bind()
	}
}

// extension is an Extension for a struct of any type.
type extension struct {
	name, description, protocol string

	connect   hook[*Conn]
	connected hook[*Conn]
	message   func(self any, ctx context.Context, c *Conn, f dohost.Frame) (handled bool, err error)
	request   func(self any, w http.ResponseWriter, r *http.Request) (handled bool)
	close     func(self any, ctx context.Context, c *Conn)

	cancelled hook[FiberInfo]

	wake       func(ctx context.Context, a Handle) error
	rowWritten func(ctx context.Context, a Handle, w *dohost.RowWrite) error
	rowsParked func(ctx context.Context, a Handle, collection string, keys []string) error

	kinds   []string
	inspect func(ctx context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error]
	admin   func(self any, ctx context.Context, r *dohost.AdminRequest) (done bool, err error)
}

// observesRows reports whether the class needs a call for each row that is written.
func (c *class) observesRows() bool {
	return len(c.workIndexes) > 0 || slices.ContainsFunc(c.extensions, func(x extension) bool { return x.rowWritten != nil })
}

// rowWritten handles a write of a row.
func (c *core) rowWritten(ctx context.Context, w *dohost.RowWrite) error {
	if err := c.rowWork.written(ctx, w); err != nil {
		return err
	}
	for _, x := range c.class.extensions {
		if x.rowWritten == nil {
			continue
		}
		if err := x.rowWritten(ctx, Handle{c}, w); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) extendedWake(ctx context.Context) error {
	for _, x := range c.class.extensions {
		if x.wake == nil {
			continue
		}
		if err := x.wake(ctx, Handle{c}); err != nil {
			return err
		}
	}
	return nil
}

// callExtensions calls a hook of the extensions that have it, until one fails.
func callExtensions[A any](ctx context.Context, in *incarnation, of func(*extension) hook[A], a A) error {
	for i := range in.class.extensions {
		if call := of(&in.class.extensions[i]); call != nil {
			if err := call(in.self, ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (in *incarnation) extendedConnect(ctx context.Context, conn *Conn) error {
	return callExtensions(ctx, in, func(x *extension) hook[*Conn] { return x.connect }, conn)
}

func (in *incarnation) extendedConnected(ctx context.Context, conn *Conn) error {
	return callExtensions(ctx, in, func(x *extension) hook[*Conn] { return x.connected }, conn)
}

func (in *incarnation) extendedMessage(ctx context.Context, conn *Conn, f dohost.Frame) (handled bool, err error) {
	for _, x := range in.class.extensions {
		if x.message == nil {
			continue
		}
		if handled, err := x.message(in.self, ctx, conn, f); handled || err != nil {
			return handled, err
		}
	}
	return false, nil
}

func (in *incarnation) extendedRequest(w http.ResponseWriter, r *http.Request) (handled bool) {
	for _, x := range in.class.extensions {
		if x.request != nil && x.request(in.self, w, r) {
			return true
		}
	}
	return false
}

func (in *incarnation) extendedClose(ctx context.Context, conn *Conn) {
	for _, x := range in.class.extensions {
		if x.close != nil {
			x.close(in.self, ctx, conn)
		}
	}
}

func (in *incarnation) extendedCancelled(ctx context.Context, f FiberInfo) error {
	return callExtensions(ctx, in, func(x *extension) hook[FiberInfo] { return x.cancelled }, f)
}

// extendedAdmin applies an operator's action to an item of an extension. known reports that an extension has items of that kind.
func (in *incarnation) extendedAdmin(ctx context.Context, r *dohost.AdminRequest) (done, known bool, err error) {
	for _, x := range in.class.extensions {
		if !slices.Contains(x.kinds, r.Kind) {
			continue
		}
		known = true
		if done, err := x.admin(in.self, ctx, r); done || err != nil {
			return done, true, err
		}
	}
	return false, known, nil
}

// protocols returns the protocols of the class's agents.
func (c *class) protocols() []string {
	all := []string{"agent"}
	for _, x := range c.extensions {
		if x.protocol != "" {
			all = append(all, x.protocol)
		}
	}
	return all
}
