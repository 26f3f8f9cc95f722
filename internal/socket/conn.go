package socket

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/runtime"
)

// Conn is a socket of the host. It is made when the object accepts it, opens when the client is answered, and ends
// once.
type Conn struct {
	// Fixed.
	table    *Table
	id       runtime.ID
	handlers *Handlers
	tags     []string
	origins  []string
	since    time.Time
	relay    Relay          // nil: the connection is here
	sockets  *objectSockets // set when it is accepted
	seq      uint64         // number in sockets

	// Guarded by the lock of the table's shard.
	prev, next *Conn
	removed    bool // from objectSockets

	// Set when it opens, before it can be seen to be open.
	ctx  context.Context // of the client
	wire *wire

	// mu guards the rest. It is the last in the order of locks, and never held during I/O.
	mu            sync.Mutex
	ws            *websocket.Conn // nil until it opens
	access        any
	attachment    []byte
	autoResponded time.Time
	frames        []queued
	inFlight      int           // how many of frames, from the first on, are being written
	unsentBytes   int           // bytes of frames
	progressAt    time.Time     // when the client last took a part of it, or it began to wait
	writing       bool          // a goroutine writes, or has closed
	closeFrame    *Closing      // the closing frame to send when frames is written
	closeResult   chan error    // yields the result of the closing handshake; nil until it begins
	muted         bool          // the object sends nothing more, for good
	closing       bool          // the object sends nothing more, unless its Close is rolled back or lost
	detached      bool          // the object no longer has the socket
	aborted       bool          // nothing more is written or read
	over          bool          // no frame need be read any more: it is aborted or detached, or the closing handshake has ended
	waitOver      chan struct{} // closed with over; nil before a large frame
	reading       bool          // a pong would be received
	receivedAt    time.Time
}

// ID is the object's.
func (c *Conn) ID() runtime.ID { return c.id }

// Tags returns the tags of the socket, each once.
func (c *Conn) Tags() []string { return slices.Clone(c.tags) }

// Access is the access of the client, as Options have it.
func (c *Conn) Access() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.access
}

// Remove removes a socket that was not passed to the object.
func (c *Conn) Remove() {
	c.table.remove(c)
	c.table.socketEnded()
}

// EndUnopened ends a socket if the handler has ended without an answer to the client.
func (c *Conn) EndUnopened(ctx context.Context) {
	if c.relay != nil {
		c.relay.Unopened()
		return
	}
	c.end(context.WithoutCancel(ctx), neverAnswered)
}

// Open answers the request, and starts the goroutine that reads until the connection ends
// and then notifies the object. So the server's goroutine, with its buffers, is free. A
// socket that cannot be opened ends here, also if w panics.
func (c *Conn) Open(w http.ResponseWriter, r *http.Request) {
	if c.relay != nil {
		answerEdge(w, c.isDetached())
		return
	}
	ctx, opened := context.WithoutCancel(r.Context()), false
	defer func() {
		if !opened {
			c.end(ctx, neverAnswered)
		}
	}()
	if c.isDetached() {
		http.Error(w, "the incarnation that accepted the socket has ended", http.StatusServiceUnavailable)
		return
	}
	t := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(t, r, &websocket.AcceptOptions{OriginPatterns: c.origins})
	if err != nil { // and Accept has answered
		return
	}
	ws.SetReadLimit(c.table.frame)
	c.mu.Lock()
	c.ws, c.wire, c.ctx, c.receivedAt = ws, t.wire, ctx, time.Now()
	if c.aborted {
		c.wire.abort()
	}
	c.startWriterLocked()
	c.mu.Unlock()
	opened = true
	go c.serve()
}

// serve is the socket's goroutine.
func (c *Conn) serve() {
	how := c.read()
	_ = c.ws.CloseNow() // unless it is closed
	if !how.Clean {
		how = c.closingResult(how)
	}
	c.end(c.ctx, how)
}

// closingResult returns how a connection ended that this side was closing: the closing goroutine may have read
// the client's closing frame while the reader was busy with a message.
func (c *Conn) closingResult(how Closing) Closing {
	c.mu.Lock()
	result, closeFrame := c.closeResult, c.closeFrame
	c.mu.Unlock()
	if result == nil {
		return how
	}
	switch err := <-result; {
	case err == nil:
		return Closing{Code: closeFrame.Code, Reason: closeFrame.Reason, Clean: true}
	case websocket.CloseStatus(err) != -1:
		return closingOf(err)
	}
	return how
}

var neverAnswered = Closing{Code: noFrame, Reason: "the handshake was not completed"}

// end notifies the object of the end of the socket, unless the socket is detached from the
// object, and removes the socket when the object has handled the end.
func (c *Conn) end(ctx context.Context, how Closing) {
	defer c.table.socketEnded()
	defer c.table.remove(c)
	c.mu.Lock()
	c.muted = true
	detached := c.detached
	c.mu.Unlock()
	if detached {
		return
	}
	ev := &socketEvent{c: c, how: &how}
	if sent, err := c.table.host.Send(ctx, c.id, runtime.Call{Op: "socket closed", Handler: ev}); err == nil {
		<-sent.Done()
	}
}

// read delivers frames until the connection ends, and returns how it ended.
func (c *Conn) read() Closing {
	refused := false
	lease := c.table.reads.Lease(budget.Object(c.id))
	defer lease.Release()
	for {
		f, err := c.receive(lease, refused || c.isDetached())
		if err != nil && !errors.Is(err, budget.ErrExhausted) && err != errNotUTF8 {
			return closingOf(err)
		}
		if err == nil && !refused && !c.isDetached() && !c.autoRespond(f) {
			err = c.deliver(f, lease.Move(int64(cap(f.Data))))
		}
		if err != nil {
			c.refuse(err)
			refused = true
		}
		lease.Release()
	}
}

func (c *Conn) setReading(reading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.receivedAt = reading, time.Now()
}

// closingOf describes the end of a connection.
func closingOf(err error) Closing {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return Closing{Code: int(e.Code), Reason: e.Reason, Clean: true}
	}
	return Closing{Code: noFrame, Reason: err.Error()}
}

// autoRespond answers a frame that the object's auto-response covers.
func (c *Conn) autoRespond(f Frame) bool {
	a := c.sockets.autoResponse.Load()
	if a == nil || !f.Text || a.request != string(f.Data) {
		return false
	}
	c.mu.Lock()
	c.autoResponded = time.Now()
	c.mu.Unlock()
	c.Push(a.response)
	return true
}

// deliver sends a frame to the object, and returns when the handler has returned or has given up the turn. After an
// error the handler has not run. The lease, which covers the frame, is released when the handler has returned or will
// not run.
func (c *Conn) deliver(f Frame, lease *budget.Lease) error {
	ev := &socketEvent{c: c, frame: f, turnReleased: make(chan struct{})}
	ev.lease.Store(lease)
	sent, err := c.table.host.Send(c.ctx, c.id, runtime.Call{Op: "socket message", Size: len(f.Data), Handler: ev})
	if err != nil {
		lease.Release()
		return err
	}
	select {
	case <-ev.turnReleased:
		return nil
	case err := <-sent.Done():
		ev.lease.Swap(nil).Release() // unless a handler has it
		if e, ok := errors.AsType[*runtime.Error](err); ok && e.Outcome == runtime.OutcomeNotRun {
			return err
		}
		return nil // the Listener gets the handler's error
	}
}

// refuse closes a socket after a frame could not be delivered.
func (c *Conn) refuse(err error) {
	how := Closing{Code: Failed, Reason: "the message could not be delivered"}
	// errors.Is could call methods of an error of the object's code, and end this goroutine.
	switch e, refused := err.(*runtime.Error); {
	case refused && e.Err == runtime.ErrClosed:
		how = Closing{Code: Restart, Reason: "the host is closing"}
	case refused && e.Err == runtime.ErrOverloaded:
		how = Closing{Code: Busy, Reason: "the object is overloaded"}
	case err == errNotUTF8:
		how = Closing{Code: notUTF8, Reason: "the text frame is not valid UTF-8"}
	case !refused && errors.Is(err, budget.ErrExhausted):
		how = Closing{Code: Busy, Reason: "the read budget of the host has no bytes for this object and client"}
	}
	c.Close(how)
}

// socketEvent is an event of a socket: a frame, or its end.
type socketEvent struct {
	c            *Conn
	frame        Frame
	lease        atomic.Pointer[budget.Lease] // of the frame; the one that swaps it for nil releases it
	turnReleased chan struct{}                // closed when the handler has given up the turn
	how          *Closing
}

// Handle calls the object's handler.
func (e *socketEvent) Handle(ctx context.Context, instance any) error {
	defer e.lease.Swap(nil).Release()
	if e.c.isDetached() {
		return nil // it was queued for an incarnation that has ended, as have its sockets
	}
	s := e.c
	if e.how != nil {
		return e.c.handlers.Closed(ctx, instance, s, *e.how)
	}
	return e.c.handlers.Message(ctx, instance, s, e.frame)
}

// Limit is how long the handler may take.
func (e *socketEvent) Limit() time.Duration { return e.c.handlers.Limit }

// TurnReleased lets the reader deliver the next frame.
func (e *socketEvent) TurnReleased() {
	if e.turnReleased != nil {
		close(e.turnReleased)
	}
}

func (c *Conn) isDetached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.detached
}

// Attachment returns a copy of the data that Attach has set.
func (c *Conn) Attachment() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.attachment)
}

// Attach keeps a copy of data with the socket.
func (c *Conn) Attach(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attachment = slices.Clone(data)
}

// AutoResponded is when the socket was last answered without the object.
func (c *Conn) AutoResponded() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.autoResponded
}
