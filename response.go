package dohost

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

const (
	maxUnflushed = 16 << 20  // bytes of a response that a handler may leave unflushed
	maxUnsent    = 256 << 10 // bytes that may wait for a slow client before Flush waits
	maxMerged    = 4 << 10   // bytes of a piece that put merges from several
	maxWritten   = 64 << 10  // bytes of one Write to a client
	pieceSize    = 128       // bytes of memory for a piece without its body and header, with the spare room of a slice
)

// piece is a part of a response that is released as one output.
type piece struct {
	status int
	header http.Header // nil except in the first and the last piece
	body   []byte
	last   bool
	socket *socket.Conn // instead of all that: see State.Accept
	next   *delegation  // or see State.Delegate
}

// size returns the bytes of memory that a piece takes until it is written.
func (p *piece) size() int {
	n := pieceSize + cap(p.body)
	for key, values := range p.header {
		n += pieceSize + len(key)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// merge adds the body of the piece next to p, and reports whether it could: next is a small piece in the middle of a
// response.
func (p *piece) merge(next piece) bool {
	if next.header != nil || next.last || len(p.body)+len(next.body) > maxMerged {
		return false
	}
	p.body = append(p.body, next.body...)
	return true
}

// responseWriter is the http.ResponseWriter of a handler. Its methods are for the handler's goroutine.
type responseWriter struct {
	ctx    context.Context
	state  *runtime.State
	out    *responseQueue
	header http.Header
	status int  // zero until WriteHeader
	begun  bool // the first piece was released
	body   []byte
	err    error           // of a Write, which cuts the response off
	until  <-chan struct{} // closed when FlushError must not wait for the client any more; nil: never

	handlers *socket.Handlers // nil: the class has none
	access   *Access          // of the request; nil: the class has no Authorize function
	socket   *socket.Conn     // once the request is accepted for one
	next     *delegation      // once the request is delegated
}

// Header returns the header, which leaves with the first piece.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader sets the status. Informational ones are ignored, and one that does
// not exist is an internal server error.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case w.status != 0 || status >= 100 && status < 200:
		return
	case status < 100 || status > 999:
		status = http.StatusInternalServerError
	}
	w.status = status
}

// Write adds to the piece that the next Flush releases.
func (w *responseWriter) Write(p []byte) (int, error) {
	if w.socket != nil || w.next != nil {
		return 0, http.ErrHijacked
	}
	if w.err != nil {
		return 0, w.err
	}
	w.WriteHeader(http.StatusOK)
	if err := w.out.closedBy(); err != nil {
		return 0, err
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if n := len(w.body) + len(p); n > maxUnflushed {
		w.err = &LimitError{Subject: "unflushed response", Size: n, Limit: maxUnflushed}
		return 0, w.err
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// WriteString is Write.
func (w *responseWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Flush is FlushError for callers that ignore the error. The next Write returns it.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError releases the unflushed bytes, and waits while too many are unsent.
func (w *responseWriter) FlushError() error {
	if w.socket != nil || w.next != nil {
		return http.ErrHijacked
	}
	if err := w.out.closedBy(); err != nil {
		return err
	}
	p := w.piece(!w.begun)
	wait := func(ctx context.Context) error { return w.out.wait(ctx, w.until) }
	if err := w.state.Chunk(w.ctx, len(p.body), func(err error) { w.out.put(p, err) }, wait); err != nil {
		switch {
		case errors.Is(err, runtime.ErrInTransaction):
			w.body = p.body // a later Flush releases it
		case errors.Is(err, errFlushEnded):
			w.begun = true // p was released
		default:
			w.err = err // the response would have a hole
		}
		return err
	}
	w.begun = true
	return nil
}

// finish releases the rest with the handler's last batch.
func (w *responseWriter) finish() error {
	if w.err != nil {
		return w.err
	}
	p := w.piece(true) // its header may contain trailers
	p.last, p.socket, p.next = true, w.socket, w.next
	return w.state.EmitOutput(w.ctx, len(p.body), func(err error) { w.out.put(p, err) })
}

func (w *responseWriter) piece(withHeader bool) piece {
	w.WriteHeader(http.StatusOK)
	p := piece{status: w.status, body: w.body}
	if withHeader {
		p.header = w.header.Clone()
	}
	w.body = nil
	return p
}

// WriteBody writes the body of a response, such as the result of [Host.Invoke]. [Options].SendBudget counts it until
// the client has received it. If the host cuts the response, WriteBody panics with [http.ErrAbortHandler], so that the
// server closes the connection. [Host.ServeObject] does the same for responses of objects.
//
// Errors: the errors of w, also if the client has disconnected.
func (h *Host) WriteBody(w http.ResponseWriter, body []byte) error {
	out := newResponseQueue(h.sockets, http.NewResponseController(w))
	out.put(piece{body: body, last: true}, nil)
	defer func() { // also if w.Write panics or ends the goroutine
		if out.end() != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	return out.write(w, body)
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// errSlowClient is the reason when the host cuts a response.
var errSlowClient = errors.New("dohost: the client does not read its response, and the send budget is exhausted")

// responseQueue is where the pieces of a response wait for the goroutine that serves the
// request. It is a socket.Response.
type responseQueue struct {
	ready chan struct{} // has something in it when there may be pieces
	table *socket.Table // counts the unsent bytes of all clients
	rc    *http.ResponseController

	mu             sync.Mutex
	pieces         []piece
	unsent         int           // bytes of the pieces that are not written
	charged        int           // of unsent
	countedByTable bool          // by the table
	cut            error         // errSlowClient once the host has cut the response
	spaceFreed     chan struct{} // closed when fewer bytes wait; nil if no Flush waits
	closed         error         // why no more can be sent
	onClose        func(error)   // called once with closed, if not nil; it neither blocks nor uses the queue
	socket         *socket.Conn  // that was accepted
}

func newResponseQueue(t *socket.Table, rc *http.ResponseController) *responseQueue {
	return &responseQueue{ready: make(chan struct{}, 1), table: t, rc: rc}
}

// put is an output of the object: constant work, and it does not block. It drops a piece that must not leave; the
// event's own result has the reason.
func (o *responseQueue) put(p piece, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || o.closed != nil {
		return
	}
	if n := len(o.pieces); n > 0 {
		last := &o.pieces[n-1]
		before := last.size()
		if last.merge(p) {
			o.unsent += last.size() - before
			o.chargeLocked()
			return
		}
	}
	o.pieces = append(o.pieces, p)
	o.unsent += p.size()
	o.chargeLocked()
	o.wakeLocked()
}

// chargeLocked charges the budget with the unsent bytes, except the first budget.Free.
func (o *responseQueue) chargeLocked() {
	now := max(o.unsent-budget.Free, 0)
	if now > 0 && !o.countedByTable {
		o.countedByTable = true
		o.table.AddResponse(o)
	}
	switch before := o.charged; {
	case now > before:
		o.charged = now
		o.table.Charge(now - before)
	case now < before:
		o.charged = now
		o.table.Refund(before - now)
	}
}

func (o *responseQueue) wakeLocked() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// Unsent returns the bytes that wait for the client, until the goroutine that serves the request has ended.
func (o *responseQueue) Unsent() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent
}

// Cut ends a response that has unsent bytes, including a Write that waits for the client.
func (o *responseQueue) Cut() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unsent == 0 {
		return false
	}
	first = o.cut == nil
	o.cut = errSlowClient
	o.closeLocked(errSlowClient)
	o.wakeLocked()
	_ = o.rc.SetWriteDeadline(time.Unix(1, 0)) // not every server has one
	return first
}

// cutBy returns an error if the host has cut the response.
func (o *responseQueue) cutBy() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}

// write writes the body of a piece to the client. It ends when the host has cut the response, even if w sets a new
// deadline for each Write.
func (o *responseQueue) write(w http.ResponseWriter, body []byte) error {
	for len(body) > 0 {
		if err := o.cutBy(); err != nil {
			return err
		}
		n := min(len(body), maxWritten)
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// take returns the pieces that wait.
func (o *responseQueue) take() []piece {
	o.mu.Lock()
	defer o.mu.Unlock()
	ps := o.pieces
	o.pieces = nil
	return ps
}

// sent records that a piece was written to the client.
func (o *responseQueue) sent(p piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsent -= p.size()
	o.chargeLocked()
	o.wakeFlushLocked()
}

// accept notes the socket that the handler has accepted, unless the request has ended.
func (o *responseQueue) accept(c *socket.Conn) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed == nil {
		o.socket = c
	}
	return o.closed
}

// left returns the socket that the handler has accepted, or nil.
func (o *responseQueue) left() *socket.Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.socket
}

// close notes that the rest of the response will not be sent.
func (o *responseQueue) close(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked(why)
}

// end closes the queue when the goroutine that serves the request ends, and returns cutBy. The table does not use the
// response after it.
func (o *responseQueue) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked(context.Canceled)
	if o.countedByTable {
		o.countedByTable = false
		o.table.RemoveResponse(o)
		o.unsent = 0
		o.chargeLocked()
	}
	return o.cut
}

func (o *responseQueue) closeLocked(why error) {
	if o.closed == nil {
		o.closed = why
		if o.onClose != nil {
			o.onClose(why)
		}
	}
	o.pieces = nil
	o.wakeFlushLocked()
}

func (o *responseQueue) wakeFlushLocked() {
	if o.spaceFreed != nil {
		close(o.spaceFreed)
		o.spaceFreed = nil
	}
}

func (o *responseQueue) closedBy() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}
