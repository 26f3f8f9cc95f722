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
	// it. A server's own would be 4 KiB for as long as the socket lasts.
	readBuffer = 512
	// controlBuffer holds a ping, a pong or a closing frame.
	controlBuffer = 128
	// maxBatch is how many bytes of frames are written at once, if there are several.
	maxBatch = 64 << 10
)

// wire is a connection that a server has given away. Each Write has whole frames, and
// those of a connection do not mix; so the messages, which are written here, and the
// control frames of the library need no lock between them.
type wire struct {
	net.Conn
	early   []byte // that had come with the request; of the reader
	severed atomic.Bool
}

// Read reads what had come with the request first.
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

// Write has its time.
func (w *wire) Write(p []byte) (int, error) {
	if err := w.begin(); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

// writeAll writes several frames in one go, if the connection can do that.
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

// begin sets the deadline of a write. If sever has run, that may have replaced the deadline of
// sever, which another write still needs: begin sets it again.
func (w *wire) begin() error {
	if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if w.severed.Load() {
		w.sever()
		return net.ErrClosed
	}
	return nil
}

// sever ends reads and writes, those that have begun as well, and does not block.
func (w *wire) sever() {
	w.severed.Store(true)
	_ = w.SetDeadline(time.Unix(1, 0)) // a connection without deadlines is closed by its reader
}

// taker is a server's response whose connection is taken with buffers of our own, so that
// nothing of the server's stays with it.
type taker struct {
	http.ResponseWriter
	wire *wire
}

// Hijack is for the library.
func (t *taker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, had, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.wire = &wire{Conn: conn}
	if n := had.Reader.Buffered(); n > 0 {
		t.wire.early = make([]byte, n)
		if _, err := had.Read(t.wire.early); err != nil { // all of it is there
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	own := bufio.NewReadWriter(bufio.NewReaderSize(t.wire, readBuffer), bufio.NewWriterSize(t.wire, controlBuffer))
	return t.wire, own, nil
}

// Packed is a frame as it goes over the wire. Nobody changes it: many sockets may have it.
type Packed []byte

// Pack makes a copy of a frame that can be sent.
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
