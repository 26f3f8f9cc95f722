package socket

import (
	"time"

	"github.com/coder/websocket"
)

// stuckAfter is the time that a client may take nothing while much waits for it. One event may send much in a burst,
// which a working client takes soon.
const stuckAfter = 10 * time.Second

// Push queues a frame after all earlier outputs of the object.
func (c *Conn) Push(f Packed) { c.room.fan.send(parcel{frame: f, one: c}) }

// HangUp closes the connection when all that was pushed is written.
func (c *Conn) HangUp(how Closing) { c.room.fan.send(parcel{how: &how, one: c}) }

// take queues the frames of parcels.
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

// stirLocked starts the writer if the socket is open and has frames to write, or is to be closed.
func (c *Conn) stirLocked() {
	if c.ws != nil && !c.writing && !c.severed && (len(c.out) > 0 || c.hung != nil) {
		c.writing = true
		go c.write()
	}
}

// write writes the queue, and then closes the connection if hung is set.
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

// cut ends the connection without a closing frame.
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

// release detaches the socket from the object. Frames sent before are written, then the connection is closed.
func (c *Conn) release(reason string) {
	c.mu.Lock()
	c.orphan, c.quiet = true, true
	c.mu.Unlock()
	c.HangUp(Closing{Code: Restart, Reason: reason})
}

// Hush notes that the object sends nothing more; false takes that back.
func (c *Conn) Hush(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = quiet || c.hung != nil || c.severed || c.orphan
}

// Silent reports whether nothing can be sent any more.
func (c *Conn) Silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}
