package socket

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

const (
	// maxOverload is the time that an input waits for an object that is overloaded, and overloadPause the pause between two attempts.
	maxOverload   = 10 * time.Second
	overloadPause = 100 * time.Millisecond
)

// inputQueue has the inputs of a socket that wait for an event. A goroutine exists while there are any. The queue stays in
// Link.inputs while the socket has bytes of the budget: frames of handlers that have given up the turn count for it, too.
type inputQueue struct {
	waiting []*linkInput
	running bool          // the goroutine exists
	lease   *budget.Lease // of the next large frame; nil before the first one. Only the goroutine calls Take and Move
}

// Deliver queues an input for the object. The edge bounds the inputs that wait.
//
// Errors: ErrClosed, and a *LimitError for a frame that is too large. After an error the link has ended.
func (l *Link) Deliver(in *LinkInput) error {
	err := l.deliver(in)
	if err != nil {
		l.fail()
	}
	return err
}

func (l *Link) deliver(in *LinkInput) error {
	if n := len(in.Frame.Data); int64(n) > l.table.frame {
		return &objectstore.LimitError{Subject: "frame", Size: n, Limit: int(l.table.frame)}
	}
	e := &linkInput{link: l, in: *in, turnReleased: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return runtime.ErrClosed
	}
	q := l.inputs[in.Socket]
	if q == nil {
		q = &inputQueue{}
		l.inputs[in.Socket] = q
	}
	e.queue, q.waiting = q, append(q.waiting, e)
	if !q.running {
		q.running = true
		go l.deliverAll(in.Socket, q)
	}
	return nil
}

// removeUnusedLocked removes a queue without inputs and without bytes of the budget.
func (l *Link) removeUnusedLocked(number uint64, q *inputQueue) {
	if !q.running && (q.lease == nil || q.lease.Idle()) && l.inputs[number] == q {
		delete(l.inputs, number)
	}
}

// deliverAll delivers the inputs of a socket: each when the handler of the one before has returned or given up the turn.
func (l *Link) deliverAll(number uint64, q *inputQueue) {
	for {
		l.mu.Lock()
		waiting := q.waiting
		q.waiting = nil
		if len(waiting) == 0 {
			q.running = false
			l.removeUnusedLocked(number, q)
		}
		l.mu.Unlock()
		if len(waiting) == 0 {
			return
		}
		for _, e := range waiting {
			if !l.HasEnded() && !e.deliver() {
				l.fail()
			}
			e.release(e.lease.Swap(nil)) // unless a handler has it
		}
	}
}

// linkInput is the event of an input.
type linkInput struct {
	link         *Link
	queue        *inputQueue
	in           LinkInput
	invalid      bool
	lease        atomic.Pointer[budget.Lease] // of the frame; nil for a small frame. Swapped for nil before its release
	turnReleased chan struct{}
	once         sync.Once // closes turnReleased
}

// reserve counts the frame toward the read budget. It waits for the budget until the link ends.
func (e *linkInput) reserve() bool {
	q, size := e.queue, int64(len(e.in.Frame.Data))
	if size <= budget.Free {
		return true
	}
	if q.lease == nil {
		e.link.setLease(q)
	}
	if ready := q.lease.Take(size, size); ready != nil && q.lease.Await(ready, e.link.done) != nil {
		return false
	}
	e.lease.Store(q.lease.Move(size))
	return true
}

// setLease sets the lease of a queue, which makes the socket a client of the budget.
func (l *Link) setLease(q *inputQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.lease = l.table.reads.Lease(budget.Object(l.id))
}

// release returns the bytes of the frame to the budget. lease may be nil.
func (e *linkInput) release(lease *budget.Lease) {
	if lease == nil {
		return
	}
	lease.Release()
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	e.link.removeUnusedLocked(e.in.Socket, e.queue)
}

// deliver sends the event, and waits until the next one may be sent. It returns false if the event has not run.
func (e *linkInput) deliver() bool {
	if !e.reserve() {
		return false
	}
	op, h := "socket message", e.link.table.host
	if e.in.Closing != nil {
		op = "socket closed"
	}
	e.invalid = e.in.Frame.Text && !utf8.Valid(e.in.Frame.Data)
	for start := time.Now(); ; {
		sent, err := h.Send(h.Context(), e.link.id, runtime.Call{Op: op, Size: len(e.in.Frame.Data), Handler: e})
		if err == nil {
			select {
			case <-e.turnReleased:
				return true
			case err = <-sent.Done():
			}
		}
		failed, ok := errors.AsType[*runtime.Error](err)
		if !ok || failed.Outcome != runtime.OutcomeNotRun {
			return true
		}
		if failed.Err != runtime.ErrOverloaded || time.Since(start) > maxOverload || !pause(overloadPause, e.link.done) {
			return false
		}
	}
}

// Handle calls the owner.
func (e *linkInput) Handle(ctx context.Context, instance any) error {
	defer e.release(e.lease.Swap(nil))
	return e.link.owner.Input(ctx, instance, &e.in, e.invalid)
}

// Limit is how long the handler may take.
func (e *linkInput) Limit() time.Duration { return e.link.owner.Limit() }

// TurnReleased lets the next input of the socket be delivered.
func (e *linkInput) TurnReleased() { e.once.Do(func() { close(e.turnReleased) }) }
