package socket

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// queued is a frame that waits for a client, or is being written to it.
type queued struct {
	frame  Packed
	shared *shared // nil: the frame is for this socket alone
}

// shared counts a frame that waits for many sockets once.
type shared struct {
	size    int64
	holders atomic.Int32 // sockets, and the broadcast while it is distributed
}

// chargeLocked counts a frame that begins to wait.
func (c *Conn) chargeLocked(q queued) {
	if c.unsentBytes += len(q.frame); q.shared != nil {
		q.shared.holders.Add(1)
	} else {
		c.table.queue.charge(int64(len(q.frame)))
	}
}

// refundLocked takes frames that were written, or will not be, out of the counts. The caller removes them from frames.
func (c *Conn) refundLocked(frames []queued) {
	for i, q := range frames {
		c.unsentBytes -= len(q.frame)
		if q.shared == nil {
			c.table.queue.refund(int64(len(q.frame)))
		} else {
			c.table.queue.releaseShared(q.shared)
		}
		frames[i] = queued{}
	}
}

// overflowLocked drops the queue of a client that does not read fast enough, and closes its socket. The client gets
// the closing code unless a large frame is being written, which then is not completed.
func (c *Conn) overflowLocked() {
	c.refundLocked(c.frames[c.inFlight:])
	c.frames = c.frames[:c.inFlight]
	c.closeLocked(Closing{Code: Busy, Reason: "the client does not read its frames fast enough"})
	if c.unsentBytes > maxUnsent {
		c.abortLocked()
	}
}

// sendQueue counts the bytes that wait for all clients of a host, frames for many sockets once.
type sendQueue struct {
	limit   int64
	bytes   atomic.Int64
	dropped atomic.Uint64 // sockets that were closed, and responses that were cut, because of the limit
	full    chan struct{} // has a token when there are too many bytes
}

func newSendQueue(limit int64) sendQueue {
	return sendQueue{limit: limit, full: make(chan struct{}, 1)}
}

func (q *sendQueue) charge(n int64) {
	if q.bytes.Add(n) > q.limit {
		select {
		case q.full <- struct{}{}:
		default: // overflowLoop has a token already
		}
	}
}

func (q *sendQueue) refund(n int64) { q.bytes.Add(-n) }

// share returns a counter for a frame. The caller is its first holder.
func (q *sendQueue) share(n int64) *shared {
	s := &shared{size: n}
	s.holders.Store(1)
	q.charge(n)
	return s
}

// releaseShared removes one holder of a frame.
func (q *sendQueue) releaseShared(s *shared) {
	if s != nil && s.holders.Add(-1) == 0 {
		q.refund(s.size)
	}
}

// overflowing reports whether frames arrive faster than overflowLoop closes sockets. The sender then closes one that
// has a queue or would get a large frame.
func (q *sendQueue) overflowing(waiting, next int) bool {
	return q.bytes.Load() > q.limit+q.limit/4 && (waiting > 0 || next > maxBatch)
}

// startOverflowLoop starts overflowLoop with the first socket or response that has to be counted.
func (t *Table) startOverflowLoop() { t.overflowOnce.Do(func() { go t.overflowLoop() }) }

// overflowLoop closes the sockets and cuts the responses with the most unsent bytes while too many bytes wait for the
// host's clients.
func (t *Table) overflowLoop() {
	for {
		select {
		case <-t.queue.full:
		case <-t.quit:
			return
		}
		ending := int64(0) // bytes of sockets and responses that end, and count until their goroutines have ended
		loads := t.unsentResponses()
		for i, l := range loads {
			loads[i].n = l.r.Unsent() // without the lock of the responses
		}
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			for _, r := range s.objects {
				for c := range r.allLocked() {
					switch n, closes := c.unsent(); {
					case closes:
						ending += int64(n)
					case n > 0:
						loads = append(loads, unsentLoad{c: c, n: n})
					}
				}
			}
			s.mu.Unlock()
		}
		slices.SortFunc(loads, func(a, b unsentLoad) int { return cmp.Compare(b.n, a.n) })
		for _, l := range loads {
			switch {
			case t.queue.bytes.Load()-ending <= t.queue.limit:
			case l.c != nil:
				l.c.overflow()
				n, _ := l.c.unsent()
				ending += int64(n)
			default:
				if l.r.Cut() {
					t.queue.dropped.Add(1)
				}
				ending += int64(l.r.Unsent())
			}
		}
	}
}

// unsent returns the number of bytes that wait for the client, and whether the socket closes after them: overflow then
// has no effect.
func (c *Conn) unsent() (n int, closes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsentBytes, c.closeFrame != nil && c.unsentBytes <= maxUnsent
}

func (c *Conn) overflow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.queue.dropped.Add(1)
	c.overflowLocked()
	c.startWriterLocked()
}
