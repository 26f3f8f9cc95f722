package alarm

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// alarmQueue is the alarms of a class, or the suspects of all classes: see the package's
// documentation.
type alarmQueue struct {
	class    string // empty: the suspects
	heap     alarmHeap
	horizon  objectstore.AlarmPos
	last     objectstore.Alarm // at the horizon
	complete bool              // nothing is beyond the horizon

	outstanding, waiting int // deliveries, and those of them that wait

	startPass startPass
}

// alarmEntry is an alarm in memory.
type alarmEntry struct {
	objectstore.Alarm
	queue   *alarmQueue
	at      time.Time // when to deliver it: when it is due, or at the start
	until   time.Time // not before this, after it was cut off; monotonic
	tries   int       // deliveries cut off in a row
	atStart bool      // delivered because the host started; counted in startPass.waiting
	index   int       // in its queue
}

// alarmHeap is a heap of alarms by time.
type alarmHeap []*alarmEntry

func (es alarmHeap) Len() int           { return len(es) }
func (es alarmHeap) Less(i, j int) bool { return es[i].at.Before(es[j].at) }
func (es alarmHeap) Swap(i, j int) {
	es[i], es[j] = es[j], es[i]
	es[i].index, es[j].index = i, j
}

// Push implements heap.Interface.
func (es *alarmHeap) Push(x any) {
	e := x.(*alarmEntry)
	e.index = len(*es)
	*es = append(*es, e)
}

// Pop implements heap.Interface.
func (es *alarmHeap) Pop() any {
	last := len(*es) - 1
	e := (*es)[last]
	(*es)[last] = nil
	*es = (*es)[:last]
	return e
}

func (q *alarmQueue) first() *alarmEntry {
	if len(q.heap) == 0 {
		return nil
	}
	return q.heap[0]
}

// queueFor returns the queue of a class, which it makes if need be. Before the classes are
// listed, a new queue knows nothing of the disk. A class that was not listed had no alarms,
// so a queue that a later change makes has nothing to read.
func (s *Scheduler) queueFor(class string) *alarmQueue {
	q := s.queues[class]
	if q == nil {
		q = &alarmQueue{class: class, complete: s.listed, startPass: startPass{allQueued: s.listed}}
		s.queues[class] = q
		s.order = append(s.order, q)
	}
	return q
}

// queueOf returns the queue of an alarm.
func (s *Scheduler) queueOf(a objectstore.Alarm) *alarmQueue {
	if a.Suspect {
		return s.suspects
	}
	return s.queueFor(a.ID.Class)
}

// put queues an entry in place of any other of the same object.
func (s *Scheduler) put(e *alarmEntry) {
	s.remove(e.ID)
	s.queued[e.ID] = e
	heap.Push(&e.queue.heap, e)
}

// remove takes an entry out of its queue, and returns it, if there was one.
func (s *Scheduler) remove(id objectstore.ID) *alarmEntry {
	e := s.queued[id]
	if e != nil {
		delete(s.queued, id)
		heap.Remove(&e.queue.heap, e.index)
	}
	return e
}

// take takes an alarm out of its queue, or out of those that are held.
func (s *Scheduler) take(id objectstore.ID) *alarmEntry {
	if e := s.held[id]; e != nil {
		delete(s.held, id)
		return e
	}
	return s.remove(id)
}

// known reports whether an alarm of the object is in memory.
func (s *Scheduler) known(id objectstore.ID) bool {
	return s.outstanding[id] != nil || s.queued[id] != nil || s.held[id] != nil
}

// minLimit is the number of alarms that a queue may always have in memory, if Config.Limit allows it.
const minLimit = 256

// limit returns how many alarms a queue may have in memory.
func (s *Scheduler) limit() int {
	return max(s.cfg.Limit/max(len(s.order)-1, 1), min(s.cfg.Limit, minLimit)) // the suspects are few
}

// trim keeps memory within its limit by moving horizons nearer.
func (s *Scheduler) trim() {
	limit := s.limit()
	for _, q := range s.order {
		if len(q.heap) <= limit {
			continue
		}
		last := s.shrink(q, limit/2)
		if q.complete || compare(last, q.last) < 0 { // else all beyond it are entries that must stay
			q.last, q.horizon, q.complete = last, last.Pos(), false
		}
	}
}

// shrink drops the entries of a queue that are farthest in the index, down to n, and
// returns the last one that is left. Entries that are not at their place in the index,
// because they were cut off or are delivered at the start, stay.
func (s *Scheduler) shrink(q *alarmQueue, n int) (last objectstore.Alarm) {
	all := slices.Clone(q.heap)
	slices.SortFunc(all, func(a, b *alarmEntry) int { return compare(a.Alarm, b.Alarm) })
	for _, e := range all[n:] {
		if e.tries == 0 && !e.atStart {
			s.remove(e.ID)
		}
	}
	return all[n-1].Alarm
}

// compare orders alarms of a queue as its index does: by due time, then by object.
func compare(a, b objectstore.Alarm) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID.Class, b.ID.Class), cmp.Compare(a.ID.Name, b.ID.Name))
}

// list makes the queues of the classes that have alarms on the disk, once.
func (s *Scheduler) list() {
	if s.listed || s.paused() {
		return
	}
	classes, err := s.cfg.Classes(s.ctx)
	if err != nil {
		s.failed(err)
		return
	}
	for _, class := range classes {
		s.queueFor(class)
	}
	s.listed = true
}

// refill reads the indexes beyond the horizons of queues that have few alarms in memory.
func (s *Scheduler) refill() {
	s.list()
	for i := 0; i < len(s.order); i++ { // reading the inbox may make queues
		s.refillQueue(s.order[i])
	}
}

// needsRefill reports whether a queue has few alarms in memory, and more on the disk.
func (s *Scheduler) needsRefill(q *alarmQueue) bool {
	return !q.complete && len(q.heap) < max(s.limit()/4, 1)
}

func (s *Scheduler) refillQueue(q *alarmQueue) {
	for s.needsRefill(q) && !s.paused() && s.ctx.Err() == nil {
		limit := max(s.limit()/2, 1)
		as, pos, err := s.cfg.Window(s.ctx, q.class, q.horizon, limit)
		if err != nil {
			s.failed(err)
			return
		}
		for _, a := range as {
			if !s.known(a.ID) {
				s.put(&alarmEntry{Alarm: a, queue: q, at: a.Due})
			}
			q.last = a
		}
		q.horizon = pos
		q.complete = len(as) < limit
		s.read()
		if len(as) > 0 && q.last.Due.After(s.now()) {
			return
		}
	}
}
