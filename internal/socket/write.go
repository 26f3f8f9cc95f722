package socket

import (
	"time"

	"github.com/coder/websocket"
)

// stuckAfter is the time that a client may take nothing while much waits for it. One event may send much in a burst,
// which a working client takes soon.
const stuckAfter = 10 * time.Second

// Push queues a frame after all earlier outputs of the object.
func (c *Conn) Push(f Packed) { c.sockets.broadcaster.send(outgoing{frame: f, recipient: c}) }

// Close closes the connection when all that was pushed is written.
func (c *Conn) Close(how Closing) { c.sockets.broadcaster.send(outgoing{closing: &how, recipient: c}) }

// enqueue queues the frames of outputs.
func (c *Conn) enqueue(ps []outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range ps {
		c.enqueueLocked(&ps[i])
	}
	c.startWriterLocked()
}

func (c *Conn) enqueueLocked(p *outgoing) {
	switch {
	case p.closing != nil:
		c.closeLocked(*p.closing)
	case c.closeFrame != nil || c.aborted:
	case c.unsentBytes > maxUnsent && c.ws != nil && time.Since(c.progressAt) > stuckAfter, c.unsentBytes > maxHeld,
		c.table.queue.overflowing(c.unsentBytes, len(p.frame)):
		c.table.queue.dropped.Add(1)
		c.overflowLocked()
	default:
		if c.unsentBytes == 0 {
			c.progressAt = time.Now()
		}
		q := queued{p.frame, p.shared}
		c.frames = append(c.frames, q)
		c.chargeLocked(q)
	}
}

func (c *Conn) closeLocked(how Closing) {
	if c.closeFrame == nil {
		c.closeFrame, c.muted = &how, true
	}
}

// startWriterLocked starts the writer if the socket is open and has frames to write, or is to be closed.
func (c *Conn) startWriterLocked() {
	if c.ws != nil && !c.writing && !c.aborted && (len(c.frames) > 0 || c.closeFrame != nil) {
		c.writing = true
		go c.write()
	}
}

// write writes the queue, and then closes the connection if closeFrame is set.
func (c *Conn) write() {
	var buf [4][]byte
	for {
		frames, closeFrame := c.batch(buf[:0])
		if len(frames) == 0 {
			if closeFrame != nil {
				// The client's closing frame, or its silence, ends the reader.
				c.closeResult <- c.ws.Close(websocket.StatusCode(closeFrame.Code), closeFrame.Reason)
				c.mu.Lock()
				c.endWaitLocked()
				c.mu.Unlock()
			}
			return
		}
		if err := c.wire.writeAll(frames); err != nil {
			c.abort()
			return
		}
	}
}

// batch returns the next frames to be written; those of the last batch were written. Without any the writer
// ends, and closes the connection if closeFrame is not nil: then no other goroutine writes any more.
func (c *Conn) batch(frames [][]byte) (_ [][]byte, closeFrame *Closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		return nil, nil
	}
	if c.inFlight > 0 {
		c.progressAt = time.Now()
		c.refundLocked(c.frames[:c.inFlight])
		c.frames, c.inFlight = c.frames[c.inFlight:], 0
	}
	if len(c.frames) == 0 {
		c.frames = nil
		if c.writing = c.closeFrame != nil; c.writing {
			c.closeResult = make(chan error, 1)
		}
		return nil, c.closeFrame
	}
	for size := 0; c.inFlight < len(c.frames); c.inFlight++ {
		f := c.frames[c.inFlight].frame
		if c.inFlight > 0 && size+len(f) > maxBatch {
			break
		}
		frames = append(frames, f)
		size += len(f)
	}
	return frames, nil
}

// abort ends the connection without a closing frame.
func (c *Conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abortLocked()
}

func (c *Conn) abortLocked() {
	c.aborted, c.muted = true, true
	c.endWaitLocked()
	c.refundLocked(c.frames)
	c.frames, c.inFlight = nil, 0
	if c.wire != nil {
		c.wire.abort()
	}
}

// detach detaches the socket from the object. Frames sent before are written, then the connection is closed.
func (c *Conn) detach(reason string) {
	c.mu.Lock()
	c.detached, c.muted = true, true
	c.endWaitLocked()
	c.mu.Unlock()
	c.Close(Closing{Code: Restart, Reason: reason})
}

// MuteSends notes that the object sends nothing more; false undoes that, unless the socket has ended since.
func (c *Conn) MuteSends(muted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = muted
}

// Muted reports whether nothing can be sent any more.
func (c *Conn) Muted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.muted || c.closing
}
