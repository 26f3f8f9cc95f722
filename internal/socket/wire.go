package socket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// writeTimeout is how long one write may take: of a frame, or of several small ones.
	writeTimeout = 30 * time.Second
	// readBuffer holds a small message with its header. One that is larger is read without
	// it. A server's own buffer would take 4 KiB for as long as the socket lasts.
	readBuffer = 512
	// controlBuffer holds a ping, a pong or a closing frame.
	controlBuffer = 128
	// maxBatch bounds the bytes of several frames that are written in one call.
	maxBatch = 64 << 10
)

// wire is a hijacked connection. Each Write has whole frames, and Writes of a connection do not mix. So the messages,
// which this package writes, and the control frames of the library need no lock between them.
type wire struct {
	net.Conn
	early   []byte // bytes that came with the request; of the reader
	aborted atomic.Bool
}

// Read first returns the bytes that came with the request.
func (w *wire) Read(p []byte) (n int, err error) {
	if len(w.early) == 0 {
		return w.Conn.Read(p)
	}
	n = copy(p, w.early)
	if w.early = w.early[n:]; len(w.early) == 0 {
		w.early = nil
	}
	return n, nil
}

// Write has a time limit.
func (w *wire) Write(p []byte) (int, error) {
	if err := w.begin(); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

// writeAll writes several frames in one call, if the connection supports that.
func (w *wire) writeAll(frames [][]byte) error {
	if err := w.begin(); err != nil {
		return err
	}
	if len(frames) == 1 {
		_, err := w.Conn.Write(frames[0])
		return err
	}
	bufs := net.Buffers(frames)
	_, err := bufs.WriteTo(w.Conn)
	return err
}

// begin sets the deadline of a write. If abort has run, begin may have replaced the deadline of
// abort, which another write still needs: begin sets it again.
func (w *wire) begin() error {
	if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if w.aborted.Load() {
		w.abort()
		return net.ErrClosed
	}
	return nil
}

// abort ends all reads and writes, pending ones included, and does not block.
func (w *wire) abort() {
	w.aborted.Store(true)
	_ = w.SetDeadline(time.Unix(1, 0)) // a connection without deadlines is closed by its reader
}

// hijacker is a server's response that is hijacked with buffers of this package's own, so that the socket keeps no
// buffer of the server.
type hijacker struct {
	http.ResponseWriter
	wire *wire
}

// Hijack implements http.Hijacker for the library.
func (t *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.wire = &wire{Conn: conn}
	if n := buffered.Reader.Buffered(); n > 0 {
		t.wire.early = make([]byte, n)
		if _, err := buffered.Read(t.wire.early); err != nil { // all of these bytes are buffered
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	own := bufio.NewReadWriter(bufio.NewReaderSize(t.wire, readBuffer), bufio.NewWriterSize(t.wire, controlBuffer))
	return t.wire, own, nil
}

// Packed is an encoded frame. It is immutable: many sockets may share it.
type Packed []byte

// Pack encodes a copy of a frame.
func Pack(f Frame) Packed {
	const (
		final, text, binaryData = 0x80, 1, 2
		two, eight              = 126, 127 // bytes of length follow
	)
	p := make(Packed, 0, len(f.Data)+10)
	if f.Text {
		p = append(p, final|text)
	} else {
		p = append(p, final|binaryData)
	}
	switch n := len(f.Data); {
	case n < two:
		p = append(p, byte(n))
	case n < 1<<16:
		p = binary.BigEndian.AppendUint16(append(p, two), uint16(n))
	default:
		p = binary.BigEndian.AppendUint64(append(p, eight), uint64(n))
	}
	return append(p, f.Data...)
}
