package runtime

import (
	"log/slog"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// Listener observes a host; it is the only means to do so. Nil functions are not called.
// The runtime's own goroutines call the functions, some while an object waits: the
// functions must be quick, must not block, and must not call the host.
type Listener struct {
	// Waking is called when an incarnation begins, before its constructor.
	Waking func(ID, objectstore.Epoch)
	// Live is called when a constructor has succeeded.
	Live func(ID, objectstore.Epoch)
	// Fenced is called when an incarnation has ended.
	Fenced func(Ended)
	// EventEnded is called when an event's code has returned or panicked.
	EventEnded func(Event)
	// Refused is called when a commit of an ended incarnation was refused.
	Refused func(ID, objectstore.Epoch)
	// AlarmEnded is called when the run of an alarm handler is over, also by a panic or the
	// end of its incarnation, or when the alarm's class is not bound.
	AlarmEnded func(Alarm)
	// AlarmParked is called when an alarm has been parked, durably: it is not delivered any
	// more, until the object sets it or an operator revives it. The run that led to this, if
	// there was one, is reported by AlarmEnded as well.
	AlarmParked func(ParkedAlarm)
	// AlarmStale is called when a newer alarm has superseded a delivery.
	AlarmStale func(ID)
	// TurnHeld is called when a turn has been held for longer than Limits.Turn.
	TurnHeld func(LongTurn)
	// StoreFailed is called once, when the store has failed.
	StoreFailed func(error)
	// Space is called when the store begins to refuse writes for lack of space, and when it
	// accepts writes again.
	Space func(objectstore.DiskSpace)
	// Damaged is called the first time that a part of the store cannot be read.
	Damaged func(objectstore.Damage)
	// Failed is called when background work of the host fails.
	Failed func(error)
	// Service is called for State.Report of package dohost, by services on top of it, once the event's
	// writes are durable; and for an Authorize function that fails. The calls are in the order of the
	// reports of each object, one at a time; no object waits for them. Reports wait for the call in progress in
	// memory, and the host drops later ones while about 64 MiB of reports wait, or while a call has taken
	// longer than a second and 4,096 wait. When the call returns, the host reports the number of dropped
	// reports to Failed, at most once in 10 s until no report waits. Close discards the reports that still
	// wait after a second, and reports their number to Failed: no call begins after Close has returned.
	Service func(id ID, event string, attrs ...slog.Attr)
}

// Ended describes an incarnation that has ended.
type Ended struct {
	ID    ID
	Epoch objectstore.Epoch
	Cause *Fenced
	Mode  eviction.EndMode
	Age   time.Duration
}

// Event describes an event after its code has returned or panicked.
type Event struct {
	ID    ID
	Epoch objectstore.Epoch
	Op    string
	Took  time.Duration // from its start, Awaits included
	Err   error         // of the handler, or of the refused commit
}

// Alarm describes a run of an alarm handler.
type Alarm struct {
	ID        ID
	Scheduled time.Time
	// Late is the time between the due time of the delivery and the beginning of the run, and not
	// negative. The due time is Scheduled or, because of SetStartAlarm, the start of the host.
	Late    time.Duration
	Attempt int
	Err     error // as in Event
}

// Tee returns a Listener that calls the functions of all of ls.
func Tee(ls ...Listener) Listener {
	return Listener{
		Waking:      func(id ID, e objectstore.Epoch) { each(ls, func(l Listener) { l.waking(id, e) }) },
		Live:        func(id ID, e objectstore.Epoch) { each(ls, func(l Listener) { call2(l.Live, id, e) }) },
		Fenced:      func(e Ended) { each(ls, func(l Listener) { call(l.Fenced, e) }) },
		EventEnded:  func(e Event) { each(ls, func(l Listener) { call(l.EventEnded, e) }) },
		Refused:     func(id ID, e objectstore.Epoch) { each(ls, func(l Listener) { call2(l.Refused, id, e) }) },
		AlarmEnded:  func(a Alarm) { each(ls, func(l Listener) { call(l.AlarmEnded, a) }) },
		AlarmParked: func(p ParkedAlarm) { each(ls, func(l Listener) { call(l.AlarmParked, p) }) },
		AlarmStale:  func(id ID) { each(ls, func(l Listener) { call(l.AlarmStale, id) }) },
		TurnHeld:    func(t LongTurn) { each(ls, func(l Listener) { call(l.TurnHeld, t) }) },
		StoreFailed: func(err error) { each(ls, func(l Listener) { call(l.StoreFailed, err) }) },
		Space:       func(d objectstore.DiskSpace) { each(ls, func(l Listener) { call(l.Space, d) }) },
		Damaged:     func(d objectstore.Damage) { each(ls, func(l Listener) { call(l.Damaged, d) }) },
		Failed:      func(err error) { each(ls, func(l Listener) { call(l.Failed, err) }) },
		Service: func(id ID, event string, attrs ...slog.Attr) {
			each(ls, func(l Listener) {
				if l.Service != nil {
					l.Service(id, event, attrs...)
				}
			})
		},
	}
}

func each(ls []Listener, f func(Listener)) {
	for _, l := range ls {
		f(l)
	}
}

func call[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

func call2[A, B any](f func(A, B), a A, b B) {
	if f != nil {
		f(a, b)
	}
}

func (l *Listener) waking(id ID, e objectstore.Epoch) { call2(l.Waking, id, e) }
func (l *Listener) storeFailed(err error)             { call(l.StoreFailed, err) }
func (l *Listener) failed(err error)                  { call(l.Failed, err) }
func (l *Listener) turnHeld(t *LongTurn)              { call(l.TurnHeld, *t) }
func (l *Listener) alarmStale(a objectstore.Alarm)    { call(l.AlarmStale, a.ID) }

func (l *Listener) alarmEnded(a objectstore.Alarm, r *alarmRun, err error) {
	call(l.AlarmEnded, Alarm{ID: a.ID, Scheduled: a.Due, Late: r.late, Attempt: r.attempt, Err: err})
}

func (h *Host) waking(inc *incarnation) {
	h.incarnations.Add(1)
	h.lis.waking(inc.obj.id(), inc.epoch())
}

func (h *Host) live(inc *incarnation) { call2(h.lis.Live, inc.obj.id(), inc.epoch()) }

func (h *Host) refused(inc *incarnation) { call2(h.lis.Refused, inc.obj.id(), inc.epoch()) }

// ended reports and uncounts an incarnation that has ended.
func (h *Host) ended(o *object, inc *incarnation, why *Fenced, mode eviction.EndMode) {
	h.incarnations.Add(-1)
	if h.opts.Ended != nil {
		h.opts.Ended(o.id(), why, mode)
	}
	if h.lis.Fenced != nil {
		h.lis.Fenced(Ended{ID: o.id(), Epoch: inc.epoch(), Cause: why, Mode: mode, Age: h.now() - inc.began})
	}
}

// eventEnded reports an event after its goroutine has left the object's code.
func (h *Host) eventEnded(ev *event) {
	if ev.kind == kindAlarm && ev.run != nil {
		h.lis.alarmEnded(ev.alarm, ev.run, ev.err)
	}
	if h.lis.EventEnded != nil {
		h.lis.EventEnded(Event{
			ID: ev.obj.id(), Epoch: ev.incarnation.epoch(), Op: ev.op, Took: h.now() - ev.begun, Err: ev.err,
		})
	}
}
