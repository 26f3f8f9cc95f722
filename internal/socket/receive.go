package socket

import (
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/internal/budget"
)

const (
	// frameTime is the time limit for a large frame to arrive. The limit grows by a second for each frameRate bytes
	// of the host's largest frame.
	frameTime = 30 * time.Second
	frameRate = 64 << 10
	// firstRead is the size of the first buffer for a frame. Buffers double.
	firstRead = 512
)

// receive reads a frame within lease, or discards it. The context never ends, which costs the library nothing:
// cutting the connection ends a read.
//
// Errors: budget.ErrExhausted, and the frame was discarded; errNotUTF8; any other ends the connection.
func (c *Conn) receive(lease *budget.Lease, discard bool) (Frame, error) {
	c.setReading(true)
	defer c.setReading(false)
	kind, r, err := c.ws.Reader(c.ctx)
	if err != nil {
		return Frame{}, err
	}
	if discard {
		return Frame{}, c.discard(r)
	}
	data, err := c.readAll(r, lease)
	if errors.Is(err, budget.ErrExhausted) {
		lease.Release()
		if discardErr := c.discard(r); discardErr != nil {
			err = discardErr
		}
	}
	if err == nil && kind == websocket.MessageText && !utf8.Valid(data) {
		return Frame{}, errNotUTF8
	}
	return Frame{Text: kind == websocket.MessageText, Data: data}, err
}

// errNotUTF8 is the error for a text frame that RFC 6455 does not allow.
var errNotUTF8 = errors.New("dohost: the text frame is not valid UTF-8")

// readAll reads a frame to its end. A large one has a time limit.
func (c *Conn) readAll(r io.Reader, lease *budget.Lease) ([]byte, error) {
	buf := make([]byte, 0, firstRead)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		case len(buf) < cap(buf):
			continue
		}
		if cap(buf) == budget.Free {
			late := time.AfterFunc(c.frameTime(), c.abort)
			defer late.Stop() // once: the buffer grows from here on
		}
		// Up to a byte more than a frame may have, which the library refuses.
		size := max(min(2*cap(buf), int(c.table.frame)+1), cap(buf)+1)
		if size > budget.Free {
			if err := lease.Reserve(c.untilOver(), int64(size), c.table.frame+1); err != nil {
				return nil, err
			}
		}
		buf = append(make([]byte, 0, size), buf...)
	}
}

// untilOver returns a channel that is closed when no frame of the socket need be read any more.
func (c *Conn) untilOver() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitOver == nil {
		c.waitOver = make(chan struct{})
		if c.over {
			close(c.waitOver)
		}
	}
	return c.waitOver
}

// endWaitLocked ends the wait of a frame for its bytes of the read budget.
func (c *Conn) endWaitLocked() {
	if !c.over && c.waitOver != nil {
		close(c.waitOver)
	}
	c.over = true
}

// discard reads the rest of a frame that is not delivered, for as long as a frame may take to arrive.
func (c *Conn) discard(r io.Reader) error {
	late := time.AfterFunc(c.frameTime(), c.abort)
	defer late.Stop()
	_, err := io.Copy(io.Discard, r)
	return err
}

func (c *Conn) frameTime() time.Duration {
	return frameTime + time.Duration(c.table.frame/frameRate)*time.Second
}
