package runtime

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Info describes an object in memory, at one moment.
type Info struct {
	ID     ID
	Epoch  objectstore.Epoch // of its incarnation; zero between two incarnations
	Age    time.Duration     // of its incarnation
	Idle   time.Duration     // since the end of its last event; zero while it has one
	Events uint64            // started since the object came into memory
	Queued int               // events that have not started
	Bytes  int               // of their encoded payloads
	Pins   []Pin             // the reasons that keep it from idle eviction
}

// Pin is a reason to keep an object in memory.
type Pin struct {
	Reason string
	For    time.Duration // its age; zero if that is unknown
}

// Inspect describes the object, if it is in memory. It does not wake the object, and does
// not count as use of it.
func (h *Host) Inspect(id ID) (Info, bool) {
	o := h.lookup(id)
	if o == nil {
		return Info{}, false
	}
	return o.inspect()
}

// Incarnations calls yield for each object that has an incarnation, in no order, until yield
// returns false.
func (h *Host) Incarnations(yield func(Info) bool) {
	for _, o := range h.all() {
		info, ok := o.inspect()
		if ok && info.Epoch != (objectstore.Epoch{}) && !yield(info) {
			return
		}
	}
}

// Live returns the number of incarnations.
func (h *Host) Live() int { return int(h.incarnations.Load()) }

func (o *object) inspect() (Info, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == objectRemoved || o.state == objectCold && o.count == 0 {
		return Info{}, false
	}
	now := o.host().now()
	info := Info{ID: o.id(), Events: o.events, Bytes: o.bytes, Queued: o.waiting.queued()}
	if inc := o.incarnation; inc != nil {
		info.Epoch, info.Age = inc.epoch(), now-inc.began
		if inc.activity != nil {
			info.Queued += inc.queue.queued()
			for ev := inc.running; ev != nil; ev = ev.succ {
				info.Pins = append(info.Pins, Pin{Reason: kindNames[ev.kind] + ev.op, For: now - ev.begun})
			}
		}
		for p := range inc.pins {
			info.Pins = append(info.Pins, Pin{Reason: p.reason, For: now - p.since})
		}
		if len(info.Pins) == 0 {
			info.Idle = now - o.last
		}
	}
	if info.Queued > 0 {
		info.Pins = append(info.Pins, Pin{Reason: "events queued"})
	}
	if o.rng != nil && !o.rng.Clean() {
		info.Pins = append(info.Pins, Pin{Reason: "writes not durable yet"})
	}
	return info, true
}

// queued counts the events of a queue that have not started.
func (l *turnList) queued() (n int) {
	for t := l.head; t != nil; t = t.next {
		if t.unstarted && !t.ev.abandoned {
			n++
		}
	}
	return n
}

// kindNames has the first part of the pin of a started event, by the event's kind. The
// operation follows; it alone names an alarm or a constructor.
var kindNames = [...]string{kindCall: "event ", kindAlarm: "", kindBackground: "task ", kindInternal: "", kindConstruct: ""}

// Work is the pending work of a host, at one moment.
type Work struct {
	Events    int       // queued, running and suspended, and tasks to come
	Undurable int64     // bytes
	Alarms    int       // waiting in memory
	Next      time.Time // when the first of them is due; zero if there is none
}

// Work returns the pending work of the host.
func (h *Host) Work() Work {
	w := Work{Events: int(h.active.Load()), Undurable: h.undurable()}
	w.Alarms, w.Next = h.scheduler.Pending()
	return w
}

// undurable returns how many bytes of the objects' writes are not durable yet.
func (h *Host) undurable() int64 { return h.store.Stats().Undurable }
