package runtime

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Point is a visit to a place.
type Point struct {
	ID    ID     // zero for work of the host for all of its objects
	Life  uint64 // number of the incarnation, unique in the store; zero if the object has none
	Event uint64 // number of the event within the object
	Op    string // the event's operation
	Place Place
	N     uint64        // counts the event's visits to this place, from 1
	Age   time.Duration // of the incarnation
	// Over is set when the incarnation has ended already, and only its code still runs.
	Over bool
	// Ctx is the caller's, at PlaceSend and PlaceAnswer. If the caller is an object, From
	// is its ID, and Life and Event are the caller's too.
	Ctx  context.Context
	From ID
}

// Place is a kind of point.
type Place uint8

// The places where an incarnation can end.
const (
	PlaceConstruct   Place = iota // the constructor begins
	PlaceStart                    // an event begins
	PlaceAlarm                    // an alarm handler begins
	PlaceStorage                  // a storage operation
	PlaceTransaction              // the end of a transaction's function
	PlaceHandOver                 // a batch is about to be committed
	PlaceHanded                   // it is committed, and in memory only
	PlaceSync                     // it is on its way to the disk
	PlaceDurable                  // it is on the disk, and nothing has left
	PlaceRelease                  // a result, or a piece of a response, is about to leave
	PlaceAwait                    // inside an Await, the turn given up, before its function
	PlaceEffect                   // inside an Await, something outside has happened
	PlaceAwaited                  // inside an Await, after its function
	PlaceResume                   // the turn is held again
	PlaceChunk                    // a piece of a streamed response was committed
	PlaceSettle                   // an alarm handler has returned, its outcome is not written
	PlaceEnd                      // an event has ended
)

// The places where no incarnation can end. Something is about to begin there, or a caller
// has its answer. The host ignores the result of At.
const (
	PlaceSend   = PlaceEnd + 1 + iota // a call is about to enter a queue
	PlaceAnswer                       // a caller has its answer
	PlaceWake                         // an incarnation is about to begin
	PlaceEnter                        // an Enter is about to queue for the turn
	PlaceRecord                       // a record is about to be made
	PlaceDue                          // alarms are about to be checked
	PlaceSweep                        // idle objects and time limits are about to be checked
	PlaceClose                        // a closing host is about to end the other incarnations
)

var places = [...]string{
	"construct", "start", "alarm", "storage", "transaction", "handover", "handed", "sync", "durable", "release",
	"await", "effect", "awaited", "resume", "chunk", "settle", "end",
	"send", "answer", "wake", "enter", "record", "due", "sweep", "close",
}

// String returns the place's name, as in the flags.
func (p Place) String() string { return places[p] }

// Ends reports whether an incarnation can end at the place.
func (p Place) Ends() bool { return p <= PlaceEnd }

// visits counts an event's visits to each place.
type visits [len(places)]atomic.Uint64

// count gives an event its counters, if the policy has an At.
func (h *Host) count(ev *event) {
	if h.opts.Policy.At != nil {
		ev.points = new(visits)
	}
}

// at is a point: the policy may end the incarnation of ev here.
func (o *object) at(ev *event, p Place) {
	if ev.points != nil {
		o.visit(ev.incarnation, Point{Event: ev.seq, Op: ev.op, Place: p, N: ev.points[p].Add(1)})
	}
}

// visit calls the policy, and ends the incarnation if the policy says so.
func (o *object) visit(inc *incarnation, p Point) {
	p.ID = o.id()
	if inc != nil {
		p.Life = inc.epoch().Host<<40 | inc.epoch().Life
		p.Age = o.host().now() - inc.born
		p.Over = inc.dead.Load()
	}
	style := o.host().opts.Policy.At(p)
	if inc != nil && style != StyleNone && p.Place.Ends() {
		o.fence(inc, &Fenced{Reason: ReasonChaos, Place: p.Place.String()}, style)
	}
}

// step is a point of no incarnation.
func (h *Host) step(p Place) {
	if h.opts.Policy.At != nil {
		h.opts.Policy.At(Point{Place: p})
	}
}

// callAt is a point of a call from outside of any turn.
func (h *Host) callAt(ctx context.Context, id ID, op string, p Place) {
	if h.opts.Policy.At == nil {
		return
	}
	at := Point{ID: id, Op: op, Place: p, Ctx: ctx}
	if ev := eventOf(ctx); ev != nil && ev.points != nil {
		at.From, at.Event, at.N = ev.obj.id(), ev.seq, ev.points[p].Add(1)
		at.Life = ev.incarnation.epoch().Host<<40 | ev.incarnation.epoch().Life
	}
	h.opts.Policy.At(at)
}

// recordAt is the store's hook: the points of the objects that have writes in a record. A
// point belongs to the present incarnation of the object, which may be a later one than the
// writer's; it belongs to none if the object has none.
func (h *Host) recordAt(s objectstore.Stage, objects iter.Seq[ID]) {
	place := PlaceSync
	switch s {
	case objectstore.StageTake:
		h.step(PlaceRecord)
		return
	case objectstore.StageDurable:
		place = PlaceDurable
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
// or for a test's double of an outside service: PlaceEffect. Without an event or a
// Policy.At it is no point. It returns the reason why the incarnation has ended, or nil.
func Visit(ctx context.Context, p Place) error {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	ev.obj.at(ev, p)
	return ev.incarnation.cause()
}
