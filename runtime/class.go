package runtime

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
)

// Class is the code of the objects of one class name.
type Class struct {
	// Name is 1 to 256 bytes; it is stored with every object.
	Name string
	// New is the constructor. It runs before any event of an incarnation, with the turn held.
	New func(ctx context.Context, s *State) (instance any, err error)
	// Alarm handles the alarm; nil for a class that sets none.
	Alarm func(ctx context.Context, instance any, info alarm.Info) error
	// ByReference lets callers and objects of this class share arguments and results.
	ByReference bool
	// RowWritten, if it is set, is called with the turn after each PutRow and each DeleteRow of an existing row, in a
	// Transaction with it. Its error rolls back the write. The RowWrite has the former entries; that of a deletion has them
	// and a key only, and deleted is set.
	// instance is nil while the constructor runs.
	RowWritten func(ctx context.Context, instance any, c *objectstore.Collection, w *objectstore.RowWrite, deleted bool) error
	// Methods are the methods that callers outside the process may name. Arguments and
	// results are JSON.
	Methods map[string]Method
}

// Method runs a named method on encoded arguments.
type Method func(ctx context.Context, instance any, arg []byte) (result []byte, err error)

// ByReference reports whether the class of that name is bound with ByReference.
func (h *Host) ByReference(class string) bool {
	c := h.classes[class]
	return c != nil && c.ByReference
}

// Method returns a named method of a class. Errors: ErrNoClass, ErrNoMethod.
func (h *Host) Method(class, name string) (Method, error) {
	c := h.classes[class]
	if c == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoClass, class)
	}
	m := c.Methods[name]
	if m == nil {
		return nil, fmt.Errorf("%w: %q of class %q", ErrNoMethod, name, class)
	}
	return m, nil
}

// classOf returns the class of an object that the host may wake. Errors: ErrNoClass, ErrElsewhere.
func (h *Host) classOf(id ID) (*class, error) {
	c := h.classes[id.Class]
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: %q", ErrNoClass, id.Class)
	case h.IsElsewhere(id):
		return nil, ErrElsewhere
	}
	return c, nil
}

// IsElsewhere reports whether another host has the object, by Options.Holds.
func (h *Host) IsElsewhere(id ID) bool { return h.opts.Holds != nil && !h.isHeld(id) }

// isHeld calls Options.Holds. Its caller may be the committer, or hold a turn, so a panic must not leave it.
func (h *Host) isHeld(id ID) (held bool) {
	if f := guard.Call(func() { held = h.opts.Holds(id) }); f != nil {
		h.log.Error("Options.Holds has panicked: the object counts as one of another host", "object", id.String(), "panic", f.Value, "stack", string(f.Stack))
		return false
	}
	return held
}

// class is a class that is bound to a host.
type class struct {
	Class
	host *Host
	table
	mu  sync.Mutex                                 // serializes changes of ops
	ops atomic.Pointer[map[string]context.Context] // contexts with the labels of an operation
}

// Profiler labels, which identify the goroutine of a long turn.
const (
	labelClass = "dohost_class"
	labelOp    = "dohost_op"
	// maxLabels bounds the operations of a class that have a label of their own: the names
	// of a service's operations are unbounded.
	maxLabels  = 256
	labelOther = "(other)"
)

// label gives this goroutine the labels of an operation.
func (c *class) label(op string) { pprof.SetGoroutineLabels(c.labels(op)) }

// labels returns a context that carries the labels of an operation.
func (c *class) labels(op string) context.Context {
	if m := c.ops.Load(); m != nil {
		if ctx := (*m)[op]; ctx != nil {
			return ctx
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]context.Context{}
	if m := c.ops.Load(); m != nil {
		if len(*m) >= maxLabels {
			op = labelOther
		}
		if ctx := (*m)[op]; ctx != nil {
			return ctx
		}
		next = maps.Clone(*m)
	}
	next[op] = pprof.WithLabels(context.Background(), pprof.Labels(labelClass, c.Name, labelOp, op))
	c.ops.Store(&next)
	return next[op]
}

// goroutines returns the stacks of all goroutines, with their labels.
func goroutines() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	return all.String()
}

// stacks returns the stacks of the goroutines that run op, by their labels.
func (c *class) stacks(op, all string) string {
	own := map[string]string{}
	pprof.ForLabels(c.labels(op), func(key, value string) bool {
		own[key] = value
		return true
	})
	var mine []string
	for g := range strings.SplitSeq(all, "\n\n") {
		if strings.Contains(g, fmt.Sprintf("%q:%q", labelClass, own[labelClass])) &&
			strings.Contains(g, fmt.Sprintf("%q:%q", labelOp, own[labelOp])) {
			mine = append(mine, g)
		}
	}
	return strings.Join(mine, "\n\n")
}
