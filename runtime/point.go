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
	ID    ID     // zero for what the host does for all of its objects
	Life  uint64 // number of the life, unique in the store; zero if the object has none
	Event uint64 // number of the event within the object
	Op    string // what the event does
	Place Place
	N     uint64        // counts the event's visits to this place, from 1
	Age   time.Duration // of the incarnation
	// Over is set when the life has ended already, and only its code goes on.
	Over bool
	// Ctx is the caller's, at PlaceSend and PlaceAnswer, and From its object, if it is one:
	// then Life and Event are the caller's too.
	Ctx  context.Context
	From ID
}

// Place is a kind of point.
type Place uint8

// The places at which a life can end.
const (
	PlaceConstruct   Place = iota // the constructor begins
	PlaceStart                    // an event begins
	PlaceAlarm                    // an alarm handler begins
	PlaceStorage                  // a storage operation
	PlaceTransaction              // the end of a transaction's function
	PlaceHandOver                 // a segment is about to become history
	PlaceHanded                   // it is history, and in memory only
	PlaceSync                     // it is on its way to the disk
	PlaceDurable                  // it is on the disk, and nothing has left
	PlaceRelease                  // a result, or a piece of a response, is about to leave
	PlaceAwait                    // inside an Await, the turn given up, before its function
	PlaceEffect                   // inside an Await, something outside has happened
	PlaceAwaited                  // inside an Await, after its function
	PlaceResume                   // the turn is held again
	PlaceChunk                    // a piece of a streamed response was handed over
	PlaceSettle                   // an alarm handler has returned, its outcome is not written
	PlaceEnd                      // an event has ended
)

// The places at which something is about to begin that no life's end belongs to.
// What At returns there means nothing.
const (
	PlaceSend   = PlaceEnd + 1 + iota // a call is about to enter a queue
	PlaceAnswer                       // a caller has its answer
	PlaceWake                         // a life is about to begin
	PlaceEnter                        // an Enter is about to queue for the turn
	PlaceRecord                       // a record is about to be made
	PlaceDue                          // alarms are about to be looked at
	PlaceSweep                        // idle objects and time limits are about to be looked at
	PlaceClose                        // a host that closes is about to end what is left
)

var places = [...]string{
	"construct", "start", "alarm", "storage", "transaction", "handover", "handed", "sync", "durable", "release",
	"await", "effect", "awaited", "resume", "chunk", "settle", "end",
	"send", "answer", "wake", "enter", "record", "due", "sweep", "close",
}

// String returns the place's name, as in the flags.
func (p Place) String() string { return places[p] }

// Ends says whether a life can end at the place.
func (p Place) Ends() bool { return p <= PlaceEnd }

// visits counts an event's visits to each place.
type visits [len(places)]atomic.Uint64

// count gives an event its counters, if the policy wants to be asked.
func (h *Host) count(ev *event) {
	if h.opts.Policy.At != nil {
		ev.points = new(visits)
	}
}

// at is a point: the policy may end the life of ev here.
func (o *object) at(ev *event, p Place) {
	if ev.points != nil {
		o.visit(ev.life, Point{Event: ev.seq, Op: ev.op, Place: p, N: ev.points[p].Add(1)})
	}
}

// visit asks the policy, and ends the life if it says so.
func (o *object) visit(l *life, p Point) {
	p.ID = o.id()
	if l != nil {
		p.Life = l.epoch().Host<<40 | l.epoch().Life
		p.Age = o.host().now() - l.born
		p.Over = l.dead.Load()
	}
	style := o.host().opts.Policy.At(p)
	if l != nil && style != StyleNone && p.Place.Ends() {
		o.fence(l, &Fenced{Reason: ReasonChaos, Place: p.Place.String()}, style)
	}
}

// step is a point of no life.
func (h *Host) step(p Place) {
	if h.opts.Policy.At != nil {
		h.opts.Policy.At(Point{Place: p})
	}
}

// callAt is a point of a call that comes from outside of any turn.
func (h *Host) callAt(ctx context.Context, id ID, op string, p Place) {
	if h.opts.Policy.At == nil {
		return
	}
	at := Point{ID: id, Op: op, Place: p, Ctx: ctx}
	if ev := eventOf(ctx); ev != nil && ev.points != nil {
		at.From, at.Event, at.N = ev.obj.id(), ev.seq, ev.points[p].Add(1)
		at.Life = ev.life.epoch().Host<<40 | ev.life.epoch().Life
	}
	h.opts.Policy.At(at)
}

// recordAt is the store's hook: the points of the objects whose writes are in a record.
// They are points of no life if the one that wrote has ended, or none did: what a fence
// leaves to be settled, say, or an import.
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
		l, events := o.life, o.events
		o.mu.Unlock()
		o.visit(l, Point{Event: events, Op: "record", Place: place, N: 1})
	}
}

// Visit is a point of the event that ctx belongs to, for a service on top of the
// runtime, or a test's double of one outside: PlaceEffect. Without an event, or a
// policy that asks, it does nothing. It returns why the life has ended, if it has.
func Visit(ctx context.Context, p Place) error {
	ev := eventOf(ctx)
	if ev == nil {
		return nil
	}
	ev.obj.at(ev, p)
	return ev.life.cause()
}
