package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/budget"
)

// The bounds of a client's connection: the same as in internal/socket.
const (
	maxUnsent    = 1 << 20  // bytes that may wait longer than stuckAfter for a client that takes nothing
	maxHeld      = 32 << 20 // bytes that may wait for a client
	stuckAfter   = 10 * time.Second
	pingInterval = 30 * time.Second
	frameTime    = 30 * time.Second // for a frame to arrive, and a second more for each frameRate bytes of the largest frame
	frameRate    = 64 << 10
	frameCost    = 64  // bytes that each frame counts in addition to its data
	maxReason    = 123 // bytes of a closing frame's reason
)

// edgeSocket is a durable socket, and the connection of its client.
type edgeSocket struct {
	entry     *edgeEntry
	number    uint64
	handshake *http.Request // not changed; its context does not end
	size      int           // about its bytes

	space chan struct{} // holds a hint that inputs were acknowledged
	cut   chan struct{} // closed when the connection is aborted or closed
	once  sync.Once     // closes cut

	reads *budget.Lease // taken and lowered with the mu of the entry

	// Guarded by the mu of the entry.
	opening   bool                // the client's handshake is not answered
	ended     bool                // no input is added any more
	poisoned  bool                // the end has replaced other inputs
	gone      bool                // the object did not have it while it was opening
	queued    bool                // in edgeLink.ready
	inputs    []*dohost.LinkInput // that are not acknowledged: from acked+1 on
	next      uint64              // number of the next input
	acked     uint64              // number of the last input that is acknowledged
	delivered uint64              // number of the last input that the link has delivered
	unacked   int                 // bytes of inputs
	inFlight  int                 // bytes of inputs that the link has delivered
	buffer    int                 // bytes of the frame that is being read
	largest   int                 // the largest value that buffer may get for the frame
	charged   int64               // the size that reads has or waits for
	tries     int                 // links over which inputs[0] was delivered

	// mu guards the rest. Only sendBudget.mu is taken while it is held, and it is not held during I/O.
	mu          sync.Mutex
	ws          *websocket.Conn // nil until it opens
	conn        net.Conn        // of ws
	frames      []*sharedFrame  // the first one is being written if busy
	busy        bool
	unsent      int       // bytes of frames
	progressAt  time.Time // when the client last took a frame, or began to wait
	writing     bool      // write runs, or has closed
	closeFrame  *closing  // sent after frames
	closeResult chan error
	evicted     bool // see evict
	aborted     bool
	reading     bool // a pong would be received
	receivedAt  time.Time
	pingTimer   *time.Timer // nil after the end
}

func newEdgeSocket(e *edgeEntry, number uint64, handshake *http.Request, size int) *edgeSocket {
	return &edgeSocket{
		entry: e, number: number, handshake: handshake, size: size, opening: true, next: 1,
		space: make(chan struct{}, 1), cut: make(chan struct{}), reads: e.edge.reads.Lease(budget.Object(e.id)), charged: budget.Free,
	}
}

// hasSpace makes the reader look.
func (s *edgeSocket) hasSpace() {
	select {
	case s.space <- struct{}{}:
	default: // it has a hint
	}
}

// hijacker notes the connection of a response.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (c net.Conn, buffered *bufio.ReadWriter, err error) {
	h.conn, buffered, err = http.NewResponseController(h.ResponseWriter).Hijack()
	return h.conn, buffered, err
}

// open answers the client's handshake, and starts the connection.
func (s *edgeSocket) open(w http.ResponseWriter, r *http.Request) {
	h := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the host has checked the origin
	if err != nil {                                                                       // and Accept has answered
		s.abort()
		s.entry.end(s, closing{Code: closeNoFrame, Reason: "the handshake was not completed"})
		return
	}
	ws.SetReadLimit(s.entry.rt.o.MaxFrame)
	s.mu.Lock()
	s.ws, s.conn, s.receivedAt, s.progressAt = ws, h.conn, time.Now(), time.Now()
	s.pingTimer = time.AfterFunc(pingInterval, s.pingIdleClient)
	s.startWriterLocked()
	s.mu.Unlock()
	go s.serve()
}

// serve is the goroutine that reads.
func (s *edgeSocket) serve() {
	how := s.read()
	_ = s.ws.CloseNow() // unless it is closed
	if !how.Clean {
		how = s.closingResult(how)
	}
	s.abort()
	s.entry.end(s, how)
}

// closingResult returns how a connection ended that this side was closing: the writer may have read the client's closing frame.
func (s *edgeSocket) closingResult(how closing) closing {
	s.mu.Lock()
	result, closeFrame := s.closeResult, s.closeFrame
	s.mu.Unlock()
	if result == nil {
		return how
	}
	switch err := <-result; {
	case err == nil:
		return closing{Code: closeFrame.Code, Reason: closeFrame.Reason, Clean: true}
	case websocket.CloseStatus(err) != -1:
		return closingOf(err)
	}
	return how
}

// closingOf describes the end of a connection.
func closingOf(err error) closing {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		return closing{Code: int(e.Code), Reason: e.Reason, Clean: true}
	}
	return closing{Code: closeNoFrame, Reason: err.Error()}
}

// read adds frames to the inputs until the connection ends, and returns how it ended.
func (s *edgeSocket) read() closing {
	refused := false
	for {
		f, err := s.receive()
		switch {
		case err == errBusy:
			s.close(closing{Code: closeBusy, Reason: "too many frames of clients wait"})
			refused = true
		case err == errNotUTF8:
			s.close(closing{Code: closeNotUTF8, Reason: "the text frame is not valid UTF-8"})
			refused = true
		case err != nil:
			s.setBuffer(0, 0)
			return closingOf(err)
		case !refused:
			s.entry.add(s, f)
		}
		if refused {
			s.setBuffer(0, 0)
		}
		for s.entry.isFull(s) {
			select {
			case <-s.space:
				continue
			case <-s.cut:
			}
			break
		}
	}
}

// errBusy is the error for a frame that was discarded, since too many bytes wait.
var errBusy = errors.New("cluster: too many frames of clients wait")

// errNotUTF8 is the error for a text frame that RFC 6455 does not allow.
var errNotUTF8 = errors.New("cluster: the text frame is not valid UTF-8")

// receive reads a frame.
func (s *edgeSocket) receive() (dohost.Frame, error) {
	s.setReading(true)
	defer s.setReading(false)
	kind, r, err := s.ws.Reader(s.handshake.Context()) // cutting the connection ends it
	if err != nil {
		return dohost.Frame{}, err
	}
	late := time.AfterFunc(frameTime+time.Duration(s.entry.rt.o.MaxFrame/frameRate)*time.Second, s.abort)
	defer late.Stop()
	data, busy, err := s.readAll(r)
	if err == nil && busy {
		err = errBusy
	}
	if err == nil && kind == websocket.MessageText && !utf8.Valid(data) {
		err = errNotUTF8
	}
	return dohost.Frame{Text: kind == websocket.MessageText, Data: data}, err
}

func (s *edgeSocket) setReading(reading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading, s.receivedAt = reading, time.Now()
}

// push queues a frame for the client. It closes the connection of a client that does not read fast enough.
func (s *edgeSocket) push(f *sharedFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := f.size()
	switch {
	case s.closeFrame != nil || s.aborted:
		return
	case s.unsent > maxUnsent && s.ws != nil && time.Since(s.progressAt) > stuckAfter, s.unsent > 0 && s.unsent+n > maxHeld:
		s.overflowLocked(maxUnsent)
	default:
		if s.unsent == 0 {
			s.progressAt = time.Now()
		}
		s.frames = append(s.frames, f)
		s.unsent += n
		f.retain()
	}
	s.startWriterLocked()
}

// dropLocked stops counting frames of the client.
func (s *edgeSocket) dropLocked(frames []*sharedFrame) {
	for _, f := range frames {
		s.unsent -= f.size()
		f.release()
	}
}

// overflowLocked drops the frames that are not being written, and closes the connection. It drops a frame that is being written if that is larger
// than largest: then the client gets no closing frame.
func (s *edgeSocket) overflowLocked(largest int) {
	keep := 0
	if s.busy {
		keep = 1
	}
	s.dropLocked(s.frames[keep:])
	s.frames = append([]*sharedFrame(nil), s.frames[:keep]...)
	if s.closeFrame == nil {
		s.closeFrame = &closing{Code: closeBusy, Reason: "the client does not read its frames fast enough"}
	}
	if s.unsent > largest {
		s.abortLocked()
	}
}

// close closes the connection after the frames that wait. It does nothing if the connection is closing already.
func (s *edgeSocket) close(how closing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeFrame == nil {
		s.closeFrame = &how
		s.startWriterLocked()
	}
}

// abort ends the connection, which need not be open, without a closing frame, and drops the frames that wait.
func (s *edgeSocket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abortLocked()
}

func (s *edgeSocket) abortLocked() {
	s.dropLocked(s.frames)
	s.aborted, s.frames, s.busy = true, nil, false
	s.entry.edge.sends.remove(s)
	if s.pingTimer != nil {
		s.pingTimer.Stop()
		s.pingTimer = nil
	}
	if s.conn != nil {
		_ = s.conn.SetDeadline(time.Unix(1, 0)) // it ends reads and writes, and does not block
	}
	s.once.Do(func() { close(s.cut) })
}

// startWriterLocked starts the writer if the connection is open and has frames to write, or is to be closed.
func (s *edgeSocket) startWriterLocked() {
	if s.ws != nil && !s.writing && !s.aborted && (len(s.frames) > 0 || s.closeFrame != nil) {
		s.writing = true
		go s.write()
	}
}

// write writes the frames, and then closes the connection if closeFrame is set.
func (s *edgeSocket) write() {
	for {
		f, closeFrame := s.nextFrame()
		if f == nil {
			if closeFrame != nil {
				s.closeResult <- s.ws.Close(websocket.StatusCode(closeFrame.Code), cutText(closeFrame.Reason, maxReason))
				s.once.Do(func() { close(s.cut) })
			}
			return
		}
		if err := s.writeFrame(f); err != nil {
			s.abort()
			return
		}
	}
}

func (s *edgeSocket) writeFrame(f *sharedFrame) error {
	ctx, kind := s.handshake.Context(), websocket.MessageBinary
	if step := s.entry.rt.o.StepTimeout; step > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step)
		defer cancel()
	}
	if f.Text {
		kind = websocket.MessageText
	}
	return s.ws.Write(ctx, kind, f.Data)
}

// nextFrame returns the next frame to write; the last one was written. Without one the writer ends, and closes the connection if closeFrame
// is not nil.
func (s *edgeSocket) nextFrame() (f *sharedFrame, closeFrame *closing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return nil, nil
	}
	if s.busy {
		s.progressAt, s.busy = time.Now(), false
		s.dropLocked(s.frames[:1])
		s.frames[0] = nil
		s.frames = s.frames[1:]
	}
	if len(s.frames) > 0 {
		s.busy = true
		return s.frames[0], nil
	}
	s.frames = nil
	if s.writing = s.closeFrame != nil; s.writing {
		s.closeResult = make(chan error, 1)
	}
	return nil, s.closeFrame
}

// pingIdleClient pings a client that has sent nothing for pingInterval, and cuts the connection if it does not answer.
func (s *edgeSocket) pingIdleClient() {
	s.mu.Lock()
	since := s.receivedAt
	quiet := s.reading && time.Since(since) >= pingInterval
	s.mu.Unlock()
	if quiet {
		ctx, cancel := context.WithTimeout(s.handshake.Context(), pingInterval)
		err := s.ws.Ping(ctx)
		cancel()
		s.mu.Lock()
		dead := err != nil && s.reading && s.receivedAt.Equal(since)
		s.mu.Unlock()
		if dead {
			s.abort()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pingTimer != nil {
		s.pingTimer.Reset(pingInterval)
	}
}

// cutText returns at most n bytes of a text, and no part of a character.
func cutText(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}
