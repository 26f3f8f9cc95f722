package socket

import (
	"time"

	"github.com/coder/websocket"
)

// stuckAfter is how long a client may take nothing while much waits for it. What one event sends
// at once may be much, and is taken soon.
const stuckAfter = 10 * time.Second

// Push queues a frame, behind what the object has let go before.
func (c *Conn) Push(f Packed) { c.room.fan.send(parcel{frame: f, one: c}) }

// HangUp closes the connection when all that was pushed is written.
func (c *Conn) HangUp(how Closing) { c.room.fan.send(parcel{how: &how, one: c}) }

// take queues what parcels have.
func (c *Conn) take(ps []parcel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range ps {
		c.takeLocked(&ps[i])
	}
	c.stirLocked()
}

func (c *Conn) takeLocked(p *parcel) {
	switch {
	case p.how != nil:
		c.hangUpLocked(*p.how)
	case c.hung != nil || c.severed:
	case c.waiting > maxUnsent && c.ws != nil && time.Since(c.moved) > stuckAfter, c.waiting > maxHeld:
		c.out = nil
		c.hangUpLocked(Closing{Code: Busy, Reason: "the client does not read what is sent to it"})
	default:
		if c.waiting == 0 {
			c.moved = time.Now()
		}
		c.out = append(c.out, p.frame)
		c.waiting += len(p.frame)
	}
}

func (c *Conn) hangUpLocked(how Closing) {
	if c.hung == nil {
		c.hung, c.quiet = &how, true
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
	var room [4][]byte
	written := 0
	for {
		frames, size, hung := c.batch(room[:0], written)
		if len(frames) == 0 {
			if hung != nil {
				// The client's closing frame, or its silence, ends the reader.
				c.parted <- c.ws.Close(websocket.StatusCode(hung.Code), hung.Reason)
			}
			return
		}
		if err := c.wire.writeAll(frames); err != nil {
			c.cut()
			return
		}
		written = size
	}
}

// batch takes the next frames to be written; so many bytes were written since the last.
// Without any the writer ends, and closes the connection if it is hung up: then no other
// writes any more.
func (c *Conn) batch(frames [][]byte, written int) (_ [][]byte, size int, hung *Closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.severed {
		return nil, 0, nil
	}
	if c.waiting -= written; written > 0 {
		c.moved = time.Now()
	}
	if len(c.out) == 0 {
		c.out, c.waiting = nil, 0
		if c.writing = c.hung != nil; c.writing {
			c.parted = make(chan error, 1)
		}
		return nil, 0, c.hung
	}
	n := 0
	for ; n < len(c.out) && (n == 0 || size+len(c.out[n]) <= maxBatch); n++ {
		frames = append(frames, c.out[n])
		size += len(c.out[n])
		c.out[n] = nil
	}
	c.out = c.out[n:]
	return frames, size, nil
}

// cut ends the connection without a word.
func (c *Conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.severed, c.quiet, c.out = true, true, nil
	if c.wire != nil {
		c.wire.sever()
	}
}

// release ends what the object has to do with the socket. What was sent before is written,
// then the connection is closed.
func (c *Conn) release(reason string) {
	c.mu.Lock()
	c.orphan, c.quiet = true, true
	c.mu.Unlock()
	c.HangUp(Closing{Code: Restart, Reason: reason})
}

// Hush notes that the object sends nothing more, or that it does after all.
func (c *Conn) Hush(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = quiet || c.hung != nil || c.severed || c.orphan
}

// Silent says that nothing can be sent any more.
func (c *Conn) Silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}
