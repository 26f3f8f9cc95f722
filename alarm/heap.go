package alarm

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// entry is an alarm in memory.
type entry struct {
	objectstore.Alarm
	at    time.Time // when to deliver it: when it is due, or at boot
	until time.Time // not before this, after it was cut off; monotonic
	tries int       // deliveries cut off in a row
	boot  bool      // delivered because the host started; counted in bootPass.waiting
	index int

	suspect bool     // see bootPass
	count   counting // of its coming run, after an unclean end
}

// counting says how far the count of a coming run is.
type counting uint8

const (
	countNot  counting = iota
	countLate          // the delivery is to do it
	countDone
)

// queue orders entries by time, and finds them by object.
type queue struct {
	order entries
	byID  map[objectstore.ID]*entry
}

type entries []*entry

func (es entries) Len() int           { return len(es) }
func (es entries) Less(i, j int) bool { return es[i].at.Before(es[j].at) }
func (es entries) Swap(i, j int) {
	es[i], es[j] = es[j], es[i]
	es[i].index, es[j].index = i, j
}

// Push implements heap.Interface.
func (es *entries) Push(x any) {
	e := x.(*entry)
	e.index = len(*es)
	*es = append(*es, e)
}

// Pop implements heap.Interface.
func (es *entries) Pop() any {
	last := len(*es) - 1
	e := (*es)[last]
	(*es)[last] = nil
	*es = (*es)[:last]
	return e
}

// put adds an entry in place of any other of the same object.
func (q *queue) put(e *entry) {
	q.remove(e.ID)
	q.byID[e.ID] = e
	heap.Push(&q.order, e)
}

// remove returns the entry of the object, if there was one.
func (q *queue) remove(id objectstore.ID) *entry {
	e := q.byID[id]
	if e != nil {
		delete(q.byID, id)
		heap.Remove(&q.order, e.index)
	}
	return e
}

func (q *queue) first() *entry {
	if len(q.order) == 0 {
		return nil
	}
	return q.order[0]
}

func (q *queue) take() *entry {
	e := heap.Pop(&q.order).(*entry)
	delete(q.byID, e.ID)
	return e
}

// shrink drops the entries that are farthest in the index, down to n, and returns
// the last one that is left. Entries that are not at their place in the index,
// because they were cut off or are delivered at boot, stay.
func (q *queue) shrink(n int) (last objectstore.Alarm) {
	all := slices.Clone(q.order)
	slices.SortFunc(all, func(a, b *entry) int { return compare(a.Alarm, b.Alarm) })
	for _, e := range all[n:] {
		if e.tries == 0 && !e.boot && !e.suspect {
			q.remove(e.ID)
		}
	}
	return all[n-1].Alarm
}

// compare orders alarms as the index does: by due time, then by object.
func compare(a, b objectstore.Alarm) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID.Class, b.ID.Class), cmp.Compare(a.ID.Name, b.ID.Name))
}
