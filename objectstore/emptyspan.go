package objectstore

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/invariants"
)

// emptySpan is a span of row keys, with their space, from one key to before another. Pebble has no rows within it.
type emptySpan struct{ from, to []byte }

// maxEmptySpans bounds the spans of a range: an object has few queues.
const maxEmptySpans = 4

// longWalk is the least number of rows that a scan visits before its first row so that the range keeps the span between its lower
// bound and that row. Nearly all of these rows are deleted.
var longWalk = 64

// emptyWalk is the first step of a scan.
type emptyWalk struct {
	r       *Range // nil: nothing is kept
	lower   []byte // of the scan
	upper   []byte // of the scan
	records uint64 // r.records when the scan looked at memory
}

// ended keeps the span before the scan's first row, or before its upper bound if first is nil.
func (w *emptyWalk) ended(c *cursor, first []byte) {
	if w.r == nil || c.walked() < longWalk {
		return
	}
	if first == nil {
		first = w.upper
	}
	w.r.keepEmpty(emptySpan{bytes.Clone(w.lower), bytes.Clone(first)}, w.records)
}

// walked returns the number of rows that the cursor has walked over, the deleted ones included.
func (c *cursor) walked() int {
	if !c.store.engine.acquire() {
		return 0
	}
	defer c.store.engine.release()
	return int(c.it.(*pebble.Iterator).Stats().InternalStats.PointCount)
}

// emptySpans are the spans of a range: at most maxEmptySpans, which neither overlap nor touch.
type emptySpans struct{ list []emptySpan }

// afterEmptyLocked returns the first key from lower on that Pebble may have.
func (r *Range) afterEmptyLocked(lower []byte) []byte {
	invariants.Held(&r.mu)
	if r.empty == nil {
		return lower
	}
	for _, s := range r.empty.list {
		if s.has(lower) {
			return s.to
		}
	}
	return lower
}

func (s *emptySpan) has(key []byte) bool {
	return bytes.Compare(s.from, key) <= 0 && bytes.Compare(key, s.to) < 0
}

// keepEmpty keeps a span, unless a layer has become durable since the number of records was read: the scan may have missed its rows.
func (r *Range) keepEmpty(s emptySpan, records uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records != records {
		return
	}
	if r.empty == nil {
		r.empty = &emptySpans{}
	}
	r.empty.add(s)
}

// add adds a span, and joins it with the spans that it touches. A full list loses its oldest span.
func (e *emptySpans) add(s emptySpan) {
	e.list = slices.DeleteFunc(e.list, func(old emptySpan) bool {
		if bytes.Compare(old.to, s.from) < 0 || bytes.Compare(s.to, old.from) < 0 {
			return false
		}
		s.from = slices.MinFunc([][]byte{s.from, old.from}, bytes.Compare)
		s.to = slices.MaxFunc([][]byte{s.to, old.to}, bytes.Compare)
		return true
	})
	if len(e.list) == maxEmptySpans {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, s)
}

// addRecordLocked counts a layer that has become durable, and cuts the spans before its rows.
func (r *Range) addRecordLocked(g *layer) {
	invariants.Held(&r.mu)
	r.records++
	if r.empty == nil {
		return
	}
	for i := range g.set.rows {
		if row := &g.set.rows[i]; !row.deleted {
			r.empty.cut(row.key)
		}
	}
	if len(r.empty.list) == 0 {
		r.empty = nil
	}
}

// cut ends a span with this key before the key.
func (e *emptySpans) cut(key []byte) {
	for i := range e.list {
		if s := &e.list[i]; s.has(key) {
			if s.to = bytes.Clone(key); bytes.Equal(s.from, s.to) {
				e.list = slices.Delete(e.list, i, i+1)
			}
			return
		}
	}
}
