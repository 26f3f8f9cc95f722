package runtime

import (
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
)

// hostFuncTimeout is how long the runtime waits for a function of the Listener, and for Policy.Idle
// and Policy.Shed.
const hostFuncTimeout = 10 * time.Second

// hostFunc is a function of a host's Options. It runs on a goroutine of its own: the
// goroutine that calls it may be one that serves all objects, or may have made an object
// wait for it.
type hostFunc struct {
	host  *Host
	name  string
	stuck atomic.Int64 // calls that have not returned within hostFuncTimeout
}

// call calls f and waits for it, for hostFuncTimeout at most. While an earlier call has not
// returned, call does nothing.
func (c *hostFunc) call(f func()) {
	if c.stuck.Load() > 0 {
		return
	}
	err := guard.Within(hostFuncTimeout, &c.stuck, f)
	if failure, ok := err.(*guard.Failure); ok {
		c.host.reportFailure(c.name, failure, failure.Stack)
	} else if err != nil {
		c.host.reportFailure(c.name, fmt.Errorf("%w; the host does not call it again until it returns", err), nil)
	}
}

// inPlace calls f on the caller's goroutine, and recovers a panic.
func (c *hostFunc) inPlace(f func()) {
	if failure := guard.Call(f); failure != nil {
		c.host.reportFailure(c.name, failure, failure.Stack)
	}
}

// reportFailure reports a function of the host's Options that did not return.
func (h *Host) reportFailure(name string, why error, stack []byte) {
	h.log.Error("a function of the host's options failed", "function", name, "err", why, "stack", string(stack))
	if name != "Listener.Failed" {
		h.lis.failed(fmt.Errorf("dohost: %s: %w", name, why))
	}
}

// guarded returns a Listener that calls the functions of l, and survives their panics. It
// waits at most hostFuncTimeout for each of them, except for EventEnded. It has no Service: see serviceReports.
func (h *Host) guarded(l Listener) *Listener {
	g := Listener{
		Waking:      guardedFunc2(h, "Waking", l.Waking),
		Live:        guardedFunc2(h, "Live", l.Live),
		Fenced:      guardedFunc(h, "Fenced", l.Fenced),
		Refused:     guardedFunc2(h, "Refused", l.Refused),
		AlarmEnded:  guardedFunc(h, "AlarmEnded", l.AlarmEnded),
		AlarmParked: guardedFunc(h, "AlarmParked", l.AlarmParked),
		AlarmStale:  guardedFunc(h, "AlarmStale", l.AlarmStale),
		TurnHeld:    guardedFunc(h, "TurnHeld", l.TurnHeld),
		StoreFailed: guardedFunc(h, "StoreFailed", l.StoreFailed),
		Space:       guardedFunc(h, "Space", l.Space),
		Damaged:     guardedFunc(h, "Damaged", l.Damaged),
		Failed:      guardedFunc(h, "Failed", l.Failed),
	}
	if l.EventEnded != nil { // called for each event, so on the event's goroutine: see object.finish
		c := &hostFunc{host: h, name: "Listener.EventEnded"}
		g.EventEnded = func(e Event) { c.inPlace(func() { l.EventEnded(e) }) }
	}
	return &g
}

func guardedFunc[A any](h *Host, name string, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	c := &hostFunc{host: h, name: "Listener." + name}
	return func(a A) { c.call(func() { f(a) }) }
}

func guardedFunc2[A, B any](h *Host, name string, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	c := &hostFunc{host: h, name: "Listener." + name}
	return func(a A, b B) { c.call(func() { f(a, b) }) }
}

// guardPolicy replaces At by a function that does not panic and, unless the Policy is
// trusted, Shed and Idle by functions that do not panic and return within hostFuncTimeout.
func (h *Host) guardPolicy(p *Policy) {
	if p.Trusted {
		return
	}
	if f := p.At; f != nil {
		c := &hostFunc{host: h, name: "Policy.At"}
		p.At = func(at Point) (mode eviction.EndMode) {
			c.inPlace(func() { mode = f(at) })
			return mode
		}
	}
	if f := p.Shed; f != nil {
		c := &hostFunc{host: h, name: "Policy.Shed"}
		p.Shed = func(live int) int { return answer(c, 0, func() int { return f(live) }) }
	}
	c, idle := &hostFunc{host: h, name: "Policy.Idle"}, p.Idle
	p.Idle = func(id ID, incarnation, events uint64) time.Duration {
		return answer(c, -1, func() time.Duration { return idle(id, incarnation, events) })
	}
}

// answer calls f and returns its result, or other if f does not return in time.
func answer[T any](c *hostFunc, other T, f func() T) T {
	result := make(chan T, 1)
	c.call(func() { result <- f() })
	select {
	case v := <-result:
		return v
	default:
		return other
	}
}

// guardedStep is step for the goroutines that serve all objects: the policy cannot end them.
func (h *Host) guardedStep(p eviction.Place) {
	switch {
	case h.opts.Policy.At == nil:
	case h.opts.Policy.Trusted:
		h.step(p)
	default:
		guard.Run(func() { h.step(p) })
	}
}

// guardedRecordAt is recordAt for the committer: the policy cannot end its goroutine.
func (h *Host) guardedRecordAt(s objectstore.Stage, objects iter.Seq[ID]) {
	if h.opts.Policy.Trusted {
		h.recordAt(s, objects)
		return
	}
	guard.Run(func() { h.recordAt(s, objects) })
}

// guardedAt is at for code that is not the event's own: the policy cannot end its goroutine.
func (o *object) guardedAt(ev *event, p eviction.Place) {
	switch {
	case ev.points == nil:
	case o.policy().Trusted:
		o.at(ev, p)
	default:
		guard.Run(func() { o.at(ev, p) })
	}
}

// visitWake visits the place of a wake, for an object without an incarnation.
func (o *object) visitWake() {
	switch {
	case o.policy().At == nil:
	case o.policy().Trusted:
		o.visit(nil, Point{Place: eviction.PlaceWake})
	default:
		guard.Run(func() { o.visit(nil, Point{Place: eviction.PlaceWake}) })
	}
}

// loggerOf returns the logger of the options. A handler that fails loses its record.
func loggerOf(o *objectstore.Options) *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(guard.Handler(o.Logger.Handler()))
}
