package runtime

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// Point is a visit to a place.
type Point struct {
	ID          ID     // zero for work of the host for all of its objects
	Incarnation uint64 // number of the incarnation, unique in the store; zero if the object has none
	Event       uint64 // number of the event within the object
	Op          string // the event's operation
	Place       eviction.Place
	N           uint64        // counts the event's visits to this place, from 1
	Age         time.Duration // of the incarnation
	// Over is set when the incarnation has ended already, and only its code still runs.
	Over bool
	// Ctx is the caller's, at eviction.PlaceSend and eviction.PlaceAnswer. If the caller is an object, From
	// is its ID, and Incarnation and Event are the caller's too.
	Ctx  context.Context
	From ID
}

// visits counts an event's visits to each place.
type visits [eviction.NumPlaces]atomic.Uint64

// count gives an event its counters, if the policy has an At.
func (h *Host) count(ev *event) {
	if h.opts.Policy.At != nil {
		ev.points = new(visits)
	}
}

// at is a point: the policy may end the incarnation of ev here.
func (o *object) at(ev *event, p eviction.Place) {
	if ev.points != nil {
		o.visit(ev.incarnation, Point{Event: ev.seq, Op: ev.op, Place: p, N: ev.points[p].Add(1)})
	}
}

// visit calls the policy, and ends the incarnation if the policy says so.
func (o *object) visit(inc *incarnation, p Point) {
	p.ID = o.id()
	if inc != nil {
		p.Incarnation = inc.epoch().Host<<40 | inc.epoch().Incarnation
		p.Age = o.host().now() - inc.began
		p.Over = inc.dead.Load()
	}
	mode := o.policy().At(p)
	if inc != nil && mode != eviction.EndNone && p.Place.Ends() {
		o.fence(inc, &Fenced{Reason: ReasonChaos, Place: p.Place.String()}, mode)
	}
}

// step is a point of no incarnation.
func (h *Host) step(p eviction.Place) {
	if h.opts.Policy.At != nil {
		h.opts.Policy.At(Point{Place: p})
	}
}

// callAt is a point of a call from outside of any turn.
func (h *Host) callAt(ctx context.Context, id ID, op string, p eviction.Place) {
	if h.opts.Policy.At == nil {
		return
	}
	at := Point{ID: id, Op: op, Place: p, Ctx: ctx}
	if ev := eventOf(ctx); ev != nil && ev.points != nil {
		at.From, at.Event, at.N = ev.obj.id(), ev.seq, ev.points[p].Add(1)
		at.Incarnation = ev.incarnation.epoch().Host<<40 | ev.incarnation.epoch().Incarnation
	}
	h.opts.Policy.At(at)
}

// recordAt is the store's hook: the points of the objects that have writes in a record. A
// point belongs to the present incarnation of the object, which may be a later one than the
// writer's; it belongs to none if the object has none.
func (h *Host) recordAt(s objectstore.Stage, objects iter.Seq[ID]) {
	place := eviction.PlaceSync
	switch s {
	case objectstore.StageTake:
		h.step(eviction.PlaceRecord)
		return
	case objectstore.StageDurable:
		place = eviction.PlaceDurable
	}
	for id := range objects {
		o := h.lookup(id)
		if o == nil {
			continue // removed from memory by a crash of the host
		}
		o.mu.Lock()
		inc, events := o.incarnation, o.events
		o.mu.Unlock()
		o.visit(inc, Point{Event: events, Op: "record", Place: place, N: 1})
	}
}

// Visit is a point of the event that ctx belongs to, for a service on top of the runtime,
// or for a test's double of an outside service: eviction.PlaceEffect. Without an event or a
// Policy.At it is no point. It returns the reason why the incarnation has ended, or nil.
func Visit(ctx context.Context, p eviction.Place) error {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	ev.obj.at(ev, p)
	return ev.incarnation.cause()
}
