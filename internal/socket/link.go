package socket

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dohost/dohost/runtime"
)

const (
	// maxLinkQueue bounds the bytes of the outputs that wait for the edge. Beyond it the link ends, and the edge reads the rows again.
	maxLinkQueue = 64 << 20
	// outputSize is counted for each output, in addition to its frame and its list of sockets.
	outputSize = 128
	// endRetry is the pause after an event of SendAll has not run.
	endRetry = time.Second
)

// LinkOutput is an output to an edge: a frame, a closing frame, an acknowledgment of inputs, or the end of sockets that the object does
// not have.
type LinkOutput struct {
	Sockets []uint64 // that it is for
	// Position orders frames and closing frames: positions of later outputs are greater strings. It is empty for the others, except for the
	// end of sockets of another history of the object: then it is less than the positions of this one.
	Position string
	Frame    *Frame
	Closing  *Closing // the edge closes the sockets, and delivers their end as an input. With Gone it delivers nothing
	Received uint64   // if not zero: inputs of the socket up to this number are durable
	Gone     bool     // the object does not have the sockets
}

func (o *LinkOutput) size() int {
	n := outputSize + 8*len(o.Sockets)
	if o.Frame != nil {
		n += len(o.Frame.Data)
	}
	return n
}

// LinkInput is an input of a socket: a frame, or the end of the connection.
type LinkInput struct {
	Socket  uint64
	Number  uint64 // of the socket's inputs, from 1 on, without gaps
	Frame   Frame
	Closing *Closing // not nil: the connection has ended, and there is no frame
}

// Link passes the outputs of an object to an edge, and the inputs of the edge's sockets to the object. Its methods may be called from any goroutine.
type Link struct {
	table *Table
	id    runtime.ID
	owner LinkOwner
	send  func(*LinkOutput)
	done  chan struct{}

	// mu guards the rest, and the queues of inputs. Only locks of the budget are taken while it is held. It is not held during send, nor
	// while the owner or the object is called.
	mu      sync.Mutex
	ended   bool
	queue   []*LinkOutput
	bytes   int  // of queue
	sending bool // a goroutine calls send
	inputs  map[uint64]*inputQueue
}

// LinkOwner handles the inputs of a link.
type LinkOwner interface {
	// Input handles an input as an event of the object. invalid reports a text that is not UTF-8.
	Input(ctx context.Context, instance any, in *LinkInput, invalid bool) error
	// Limit is how long Input may take.
	Limit() time.Duration
	// Ended is called when the link ends by itself. It must not call the link.
	Ended()
}

// NewLink makes a link. send gets the outputs, one at a time.
func (t *Table) NewLink(id runtime.ID, owner LinkOwner, send func(*LinkOutput)) *Link {
	return &Link{table: t, id: id, owner: owner, send: send, done: make(chan struct{}), inputs: map[uint64]*inputQueue{}}
}

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// End ends the link.
func (l *Link) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked()
}

func (l *Link) endLocked() (first bool) {
	if first = !l.ended; first {
		l.ended, l.queue = true, nil
		close(l.done)
	}
	return first
}

// fail ends the link, and notifies the owner.
func (l *Link) fail() {
	l.mu.Lock()
	first := l.endLocked()
	l.mu.Unlock()
	if first {
		l.owner.Ended()
	}
}

// Push queues an output. It is constant work.
func (l *Link) Push(o *LinkOutput) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.queue = append(l.queue, o)
	l.bytes += o.size()
	if !l.sending {
		l.sending = true
		go l.drain()
	}
}

// drain calls send until the queue is empty.
func (l *Link) drain() {
	for {
		l.mu.Lock()
		os, full := l.queue, l.bytes > maxLinkQueue
		l.queue, l.bytes = nil, 0
		l.sending = len(os) > 0 && !full
		sending := l.sending
		l.mu.Unlock()
		if full {
			l.fail()
		}
		if !sending {
			return
		}
		for _, o := range os {
			l.send(o)
		}
	}
}

// HasEnded reports whether the link has ended.
func (l *Link) HasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// SendAll sends events to an object, each when the handler of the one before has returned or given up the turn, and returns immediately. It
// repeats an event that has not run, until quit is closed.
func (t *Table) SendAll(id runtime.ID, op string, events []runtime.Handler, quit <-chan struct{}) {
	if len(events) > 0 {
		go t.sendAll(id, op, events, quit)
	}
}

func (t *Table) sendAll(id runtime.ID, op string, events []runtime.Handler, quit <-chan struct{}) {
	for _, h := range events {
		e := &orderedEvent{Handler: h, turnReleased: make(chan struct{})}
		for {
			sent, err := t.host.Send(t.host.Context(), id, runtime.Call{Op: op, Handler: e})
			if err == nil {
				select {
				case err = <-sent.Done():
				case <-e.turnReleased:
				}
			}
			failed, ok := errors.AsType[*runtime.Error](err)
			if !ok || failed.Outcome != runtime.OutcomeNotRun || !pause(endRetry, quit) {
				break
			}
		}
	}
}

// orderedEvent is an event of SendAll.
type orderedEvent struct {
	runtime.Handler
	turnReleased chan struct{}
}

// Limit is how long the handler may take.
func (e *orderedEvent) Limit() time.Duration {
	if h, ok := e.Handler.(runtime.LimitedHandler); ok {
		return h.Limit()
	}
	return 0
}

// TurnReleased lets the next event be sent.
func (e *orderedEvent) TurnReleased() { close(e.turnReleased) }

// pause waits, and reports whether quit is open after that.
func pause(d time.Duration, quit <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}

// ForEach calls f for the numbers from 0 to n-1, limit at a time, and returns when all calls have ended or ctx has. A call that has not ended by
// then continues. f must not panic.
func ForEach(ctx context.Context, n, limit int, f func(i int)) {
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		running.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// After reports whether a frame or a closing frame is later than a position: it has a greater one, or belongs to another history of the object.
func (o *LinkOutput) After(position string) bool {
	return !SameHistory(o.Position, position) || o.Position > position
}

// historyDigits is the length of the prefix of a position that names the history.
const historyDigits = 8

// SameHistory reports whether two positions can be compared.
func SameHistory(a, b string) bool {
	return len(a) >= historyDigits && len(b) >= historyDigits && a[:historyDigits] == b[:historyDigits]
}
