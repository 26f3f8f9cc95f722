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
	case c.waiting > maxUnsent && c.ws != nil && time.Since(c.moved) > stuckAfter, c.waiting > maxHeld,
		c.table.queue.overflowing(c.waiting, len(p.frame)):
		c.table.queue.dropped.Add(1)
		c.overflowLocked()
	default:
		if c.waiting == 0 {
			c.moved = time.Now()
		}
		q := queued{p.frame, p.shared}
		c.out = append(c.out, q)
		c.chargeLocked(q)
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
	for {
		frames, hung := c.batch(room[:0])
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
	}
}

// batch returns the next frames to be written; those of the last batch were written. Without any the writer
// ends, and closes the connection if hung is not nil: then no other goroutine writes any more.
func (c *Conn) batch(frames [][]byte) (_ [][]byte, hung *Closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.severed {
		return nil, nil
	}
	if c.flying > 0 {
		c.moved = time.Now()
		c.refundLocked(c.out[:c.flying])
		c.out, c.flying = c.out[c.flying:], 0
	}
	if len(c.out) == 0 {
		c.out = nil
		if c.writing = c.hung != nil; c.writing {
			c.parted = make(chan error, 1)
		}
		return nil, c.hung
	}
	for size := 0; c.flying < len(c.out); c.flying++ {
		f := c.out[c.flying].frame
		if c.flying > 0 && size+len(f) > maxBatch {
			break
		}
		frames = append(frames, f)
		size += len(f)
	}
	return frames, nil
}

// cut ends the connection without a word.
func (c *Conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutLocked()
}

func (c *Conn) cutLocked() {
	c.severed, c.quiet = true, true
	c.refundLocked(c.out)
	c.out, c.flying = nil, 0
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
