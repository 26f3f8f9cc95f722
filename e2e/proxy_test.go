//go:build e2e

package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// proxy passes requests of clients to a server, byte for byte once a WebSocket is open, and records the frames. Its
// address stays the same while servers start and end.
type proxy struct {
	mu     sync.Mutex     // guards the rest
	server string         // address; empty while there is none
	wire   []*wired       // of the case that runs
	open   sync.WaitGroup // exchanges that have not ended; waited for while no case runs
}

// wired is an exchange that has not ended.
type wired struct {
	mu sync.Mutex
	exchange
}

// ServeHTTP passes a request on. A server that is not there is a connection that breaks.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, up := p.dial(r)
	if up == nil {
		panic(http.ErrAbortHandler)
	}
	defer p.open.Done()
	defer up.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if err := r.Write(up); err != nil {
		panic(http.ErrAbortHandler)
	}
	answers := bufio.NewReader(up)
	res, err := http.ReadResponse(answers, r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	x.set(func(e *exchange) { e.Status, e.Body = res.StatusCode, string(body) })
	if res.StatusCode == http.StatusSwitchingProtocols {
		p.relay(w, res, x, up.(*net.TCPConn), answers)
		return
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	x.set(func(e *exchange) { e.Answer = string(answer) })
	for k, v := range res.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer) // the client may have gone
}

// dial connects to the server, if there is one, and records the request.
func (p *proxy) dial(r *http.Request) (*wired, net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == "" {
		return nil, nil
	}
	up, err := net.Dial("tcp", p.server)
	if err != nil {
		return nil, nil
	}
	x := &wired{exchange: exchange{Request: r.Method + " " + r.RequestURI}}
	p.wire = append(p.wire, x)
	p.open.Add(1)
	return x, up
}

// relay passes frames on in both directions until both have ended.
func (p *proxy) relay(w http.ResponseWriter, res *http.Response, x *wired, up *net.TCPConn, answers io.Reader) {
	c, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	down := c.(*net.TCPConn)
	defer down.Close()
	if err := res.Write(down); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(up, buffered, func(f string) { x.set(func(e *exchange) { e.Up = append(e.Up, f) }) }) })
	both.Go(func() {
		pass(down, answers, func(f string) { x.set(func(e *exchange) { e.Down = append(e.Down, f) }) })
	})
	both.Wait()
}

func (x *wired) set(f func(*exchange)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.exchange)
}

// pass passes messages on and records them. It records an end without a closing frame as one.
func pass(to *net.TCPConn, from io.Reader, note func(message string)) {
	in := bufio.NewReader(io.TeeReader(from, &patient{to}))
	var m message
	for m.readFrame(in) == nil {
		if text := m.String(); m.final && text != "" {
			note(text)
		}
	}
	if m.op != closing {
		note("(cut)")
	}
	_, _ = io.Copy(io.Discard, in) // bytes after the frames
	_ = to.CloseWrite()            // or it is closed altogether
}

// patient writes while the other side reads, and then discards, so that the reader continues.
type patient struct{ to io.Writer }

func (p *patient) Write(b []byte) (int, error) {
	if _, err := p.to.Write(b); err != nil {
		p.to = io.Discard
	}
	return len(b), nil
}

// longest is the maximum of a recorded message.
const longest = 10_000

// The kinds of frames.
const (
	more byte = iota
	text
	binaries
	closing = 8
)

// message is a message while its frames are being read. Browsers cut large ones into pieces.
type message struct {
	op    byte
	final bool
	size  uint64
	data  []byte // its beginning
}

func (m *message) readFrame(r io.Reader) error {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if op := head[0] & 0x0f; op != more {
		*m = message{op: op} // pings do not come while a client sends a message in pieces
	}
	m.final = head[0]&0x80 != 0
	size := uint64(head[1] & 0x7f)
	if wide := map[uint64]int{126: 2, 127: 8}[size]; wide > 0 {
		var b [8]byte
		if _, err := io.ReadFull(r, b[8-wide:]); err != nil {
			return err
		}
		size = binary.BigEndian.Uint64(b[:])
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return err
		}
	}
	data := make([]byte, min(size, longest))
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, r, int64(size)-int64(len(data))); err != nil {
		return err
	}
	for i := range data {
		data[i] ^= mask[i%4]
	}
	m.size += size
	m.data = append(m.data, data...)
	return nil
}

// String describes the message. It is empty for pings and pongs.
func (m *message) String() string {
	switch {
	case m.op == closing && m.size >= 2:
		return strings.TrimSpace(fmt.Sprintf("(close %d) %s", binary.BigEndian.Uint16(m.data), m.data[2:]))
	case m.op == closing:
		return "(close without a code)"
	case m.op == binaries:
		return fmt.Sprintf("(binary %x)", m.data)
	case m.op == text && m.size <= longest:
		return string(m.data)
	case m.op == text:
		return fmt.Sprintf("(text of %d bytes)", m.size)
	}
	return ""
}

// begin begins a new recording.
func (p *proxy) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wire = nil
}

// end waits until all exchanges have ended, and returns them.
func (p *proxy) end() (all []exchange) {
	p.open.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.wire {
		all = append(all, x.exchange)
	}
	return all
}

// serve sets the server's address; empty if there is no server.
func (p *proxy) serve(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = address
}
