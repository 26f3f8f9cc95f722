package socket

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/runtime"
)

// writeTimeout is how long one frame may take to be written.
const writeTimeout = 30 * time.Second

// Conn is a socket as the host has it. It is made when the object accepts it, opens when
// the client is answered, and ends once.
type Conn struct {
	// Fixed.
	table    *Table
	id       runtime.ID
	handlers *Handlers
	tags     []string
	origins  []string

	// mu guards the rest. It is taken after that of the host's sockets, before no other
	// lock, and never held during I/O.
	mu         sync.Mutex
	ws         *websocket.Conn // nil until it opens
	ctx        context.Context // of reads and writes; nil until it opens
	cancel     context.CancelFunc
	attachment []byte
	answered   time.Time
	out        []Frame
	waiting    int      // bytes of out
	writing    bool     // a goroutine writes, or has closed
	hung       *Closing // how it is to be closed when out is written
	quiet      bool     // the object sends nothing more
	orphan     bool     // the object has nothing to do with it any more
	severed    bool     // nothing more is written or read
	reading    bool     // so that a pong would be heard
	heard      time.Time
}

// ID is the object's.
func (c *Conn) ID() runtime.ID { return c.id }

// Tags are what it was accepted with, each once.
func (c *Conn) Tags() []string { return slices.Clone(c.tags) }

// Forget is for a socket that the object was not given.
func (c *Conn) Forget() {
	c.table.remove(c)
	c.table.conns.Done()
}

// Never ends a socket whose client was never answered.
func (c *Conn) Never(ctx context.Context) { c.end(context.WithoutCancel(ctx), neverAnswered) }

// Open answers the request, reads until the connection ends, and tells the object.
func (c *Conn) Open(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	if c.orphaned() {
		http.Error(w, "the incarnation that accepted the socket was ended", http.StatusServiceUnavailable)
		c.end(ctx, neverAnswered)
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: c.origins})
	if err != nil { // and Accept has said so
		c.end(ctx, neverAnswered)
		return
	}
	ws.SetReadLimit(maxFrame)
	c.mu.Lock()
	c.ws, c.ctx, c.cancel, c.heard = ws, ctx, cancel, time.Now()
	if c.severed {
		cancel()
	}
	c.stirLocked()
	c.mu.Unlock()
	how := c.read()
	_ = ws.CloseNow() // unless it is closed
	c.end(ctx, how)
}

var neverAnswered = Closing{Code: noFrame, Reason: "the client was never answered"}

// end tells the object how the socket has ended, unless it has nothing to do with it any
// more, and takes the socket away when the object has heard of it.
func (c *Conn) end(ctx context.Context, how Closing) {
	defer c.table.conns.Done()
	defer c.table.remove(c)
	c.mu.Lock()
	c.quiet = true
	orphan := c.orphan
	c.mu.Unlock()
	if orphan {
		return
	}
	ev := &socketEvent{c: c, how: &how}
	if sent, err := c.table.host.Send(ctx, c.id, runtime.Call{Op: "socket closed", Handler: ev}); err == nil {
		<-sent.Done()
	}
}

// read delivers frames until none comes any more, and says why.
func (c *Conn) read() Closing {
	refused := false
	for {
		f, err := c.next()
		switch {
		case err != nil:
			return closingOf(err)
		case refused: // it is being closed
		case c.answersItself(f):
		default:
			if err := c.deliver(f); err != nil {
				c.refuse(err)
				refused = true
			}
		}
	}
}

// next reads a frame.
func (c *Conn) next() (Frame, error) {
	c.listens(true)
	kind, data, err := c.ws.Read(c.ctx)
	c.listens(false)
	return Frame{Text: kind == websocket.MessageText, Data: data}, err
}

func (c *Conn) listens(reading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.heard = reading, time.Now()
}

// closingOf says how a connection has ended.
func closingOf(err error) Closing {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return Closing{Code: int(e.Code), Reason: e.Reason, Clean: true}
	}
	return Closing{Code: noFrame, Reason: err.Error()}
}

// answersItself answers what the object has said it would be answered.
func (c *Conn) answersItself(f Frame) bool {
	if !f.Text {
		return false
	}
	response, ok := c.table.autoResponse(c.id, f.Data)
	if !ok {
		return false
	}
	c.mu.Lock()
	c.answered = time.Now()
	c.mu.Unlock()
	c.Push(Frame{Text: true, Data: response})
	return true
}

// deliver gives a frame to the object, and returns when the handler has returned or has
// given up the turn. An error says that it did not run.
func (c *Conn) deliver(f Frame) error {
	ev := &socketEvent{c: c, frame: f, away: make(chan struct{})}
	sent, err := c.table.host.Send(c.ctx, c.id, runtime.Call{Op: "socket message", Size: len(f.Data), Handler: ev})
	if err != nil {
		return err
	}
	select {
	case <-ev.away:
		return nil
	case err := <-sent.Done():
		if e, ok := errors.AsType[*runtime.Error](err); ok && e.Ran == runtime.RanNo {
			return err
		}
		return nil // what the handler returned is the Listener's
	}
}

// refuse closes a socket whose frame could not be delivered.
func (c *Conn) refuse(err error) {
	how := Closing{Code: Failed, Reason: "the message could not be delivered"}
	switch {
	case errors.Is(err, runtime.ErrClosed):
		how = Closing{Code: Restart, Reason: "the host is closing"}
	case errors.Is(err, runtime.ErrOverloaded):
		how = Closing{Code: Busy, Reason: "the object has too much to do"}
	}
	c.HangUp(how)
}

// socketEvent is an event of a socket: a frame, or its end.
type socketEvent struct {
	c     *Conn
	frame Frame
	away  chan struct{} // closed when the handler has given up the turn
	how   *Closing
}

// Handle calls the object's handler.
func (e *socketEvent) Handle(ctx context.Context, instance any) error {
	if e.c.orphaned() {
		return nil // it was queued for an incarnation that has ended, and its sockets with it
	}
	s := e.c
	if e.how != nil {
		return e.c.handlers.Closed(ctx, instance, s, *e.how)
	}
	return e.c.handlers.Message(ctx, instance, s, e.frame)
}

// Away lets the next frame come.
func (e *socketEvent) Away() {
	if e.away != nil {
		close(e.away)
	}
}

// Push queues a frame.
func (c *Conn) Push(f Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hung != nil || c.severed:
	case c.waiting > maxUnsent:
		c.out = nil
		c.hangUpLocked(Closing{Code: Slow, Reason: "the client does not read what is sent to it"})
	default:
		c.out = append(c.out, f)
		c.waiting += len(f.Data)
		c.stirLocked()
	}
}

// HangUp closes the connection when all that was pushed is written.
func (c *Conn) HangUp(how Closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUpLocked(how)
}

func (c *Conn) hangUpLocked(how Closing) {
	if c.hung == nil {
		c.hung, c.quiet = &how, true
		c.stirLocked()
	}
}

// stirLocked has somebody write, if there is something to write and somebody to write to.
func (c *Conn) stirLocked() {
	if c.ws != nil && !c.writing && !c.severed && (len(c.out) > 0 || c.hung != nil) {
		c.writing = true
		go c.write()
	}
}

// write writes what is queued, and then closes if that is wanted.
func (c *Conn) write() {
	for {
		f, hung, more := c.pop()
		if !more {
			if hung != nil {
				// The client's closing frame, or its silence, ends the reader.
				_ = c.ws.Close(websocket.StatusCode(hung.Code), hung.Reason)
			}
			return
		}
		if err := c.writeFrame(f); err != nil {
			c.cut()
			return
		}
	}
}

// pop takes the next frame to be written. Without one the writer ends, and closes the
// connection if it is hung up: then no other writes any more.
func (c *Conn) pop() (f Frame, hung *Closing, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.severed {
		return f, nil, false
	}
	if len(c.out) == 0 {
		c.waiting = 0
		c.writing = c.hung != nil
		return f, c.hung, false
	}
	f = c.out[0]
	c.out[0] = Frame{}
	c.out = c.out[1:]
	c.waiting -= len(f.Data)
	return f, nil, true
}

func (c *Conn) writeFrame(f Frame) error {
	ctx, cancel := context.WithTimeout(c.ctx, writeTimeout)
	defer cancel()
	kind := websocket.MessageBinary
	if f.Text {
		kind = websocket.MessageText
	}
	return c.ws.Write(ctx, kind, f.Data)
}

// cut ends the connection without a word.
func (c *Conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.severed, c.quiet, c.out = true, true, nil
	if c.cancel != nil {
		c.cancel()
	}
}

// release ends what the object has to do with the socket. What was sent before is written,
// then the connection is closed.
func (c *Conn) release(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphan = true
	c.hangUpLocked(Closing{Code: Restart, Reason: reason})
}

// unheard says that nothing was heard of the client for so long, while somebody listened.
func (c *Conn) unheard(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ws != nil && c.reading && time.Since(c.heard) >= d
}

// ping asks the client whether it is there, and cuts the connection if it does not answer.
func (c *Conn) ping() {
	c.mu.Lock()
	since := c.heard
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, pingEvery)
	defer cancel()
	if c.ws.Ping(ctx) == nil {
		return
	}
	c.mu.Lock()
	dead := c.reading && c.heard.Equal(since) // or nobody has listened
	c.mu.Unlock()
	if dead {
		c.cut()
	}
}

// Hush notes that the object sends nothing more, or that it does after all.
func (c *Conn) Hush(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = quiet || c.hung != nil || c.severed
}

// Silent says that nothing can be sent any more.
func (c *Conn) Silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

func (c *Conn) orphaned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orphan
}

// Attachment is a copy of what Attach has set.
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
	return c.answered
}
