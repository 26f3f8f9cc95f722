package cluster

import (
	"io"

	"github.com/dohost/dohost/internal/budget"
)

// The bounds of the bytes that an edge has read for all of its clients together.
const (
	maxReads   = 256 << 20 // of frames that are being read, or are not acknowledged; at least readFrames of the largest buffers
	readFrames = 4         // see Largest of package budget
	firstRead  = 512       // bytes of the first buffer for a frame
)

// largestBuffer returns the largest size of a buffer for a frame, which is a byte more than a frame may have, with inputOverhead.
func largestBuffer(maxFrame int64) int64 { return maxFrame + 1 + inputOverhead }

// readLimit returns the limit of an edge. Its reserve has the bytes of the largest buffer, since a client waits for them in addition to its inputs.
func readLimit(maxFrame int64) int64 { return max(maxReads, readFrames*largestBuffer(maxFrame)) }

// newReads returns the budget of an edge. A socket has one lease, for its inputs and the frame that is being read.
//
// Callers of Take and Lower hold mu of the edgeEntry, so the lease gets the sizes in the order of their computation. Callers of
// Wait do not hold it.
func newReads(maxFrame int64) *budget.Budget { return budget.New(readLimit(maxFrame)) }

// chargeLocked returns the size of the lease that a socket needs: at least budget.Free.
func (s *edgeSocket) chargeLocked() int64 { return max(int64(s.unacked+s.buffer), budget.Free) }

// mostLocked returns the size of the lease that a socket may need until its frame has arrived.
func (s *edgeSocket) mostLocked() int64 {
	if n := s.chargeLocked(); n == budget.Free {
		return n
	}
	return int64(s.unacked + max(s.buffer, s.largest))
}

// releaseUnusedLocked releases the bytes that a socket has taken and does not need any more.
func (e *edgeEntry) releaseUnusedLocked(s *edgeSocket) {
	if n := s.chargeLocked(); n != s.charged {
		s.charged = n
		s.reads.Lower(n, s.mostLocked())
	}
}

// setBuffer notes the size of the buffer for the frame that is being read, and the largest size that the buffer may get; 0 if the frame was
// dropped. If the budget stays exhausted, it returns false.
func (s *edgeSocket) setBuffer(size, largest int) bool {
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	s.buffer, s.largest = size, largest
	n := s.chargeLocked()
	if n <= s.charged {
		e.releaseUnusedLocked(s)
		return true
	}
	s.charged = n
	ready := s.reads.Take(n, s.mostLocked())
	if ready == nil {
		return true
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	return s.reads.Wait(ready, s.cut) == nil
}

// nextSize returns the size of a larger buffer.
func nextSize(size, largest int) int {
	if size < largest {
		return min(2*size, largest)
	}
	return 2 * size
}

// readAll reads a frame to its end, and takes its bytes of the budget. busy reports that the budget is exhausted: the rest of the frame was
// discarded.
func (s *edgeSocket) readAll(r io.Reader) (data []byte, busy bool, err error) {
	largest := int(largestBuffer(s.entry.rt.o.MaxFrame))
	for size := firstRead; ; size = nextSize(size, largest-inputOverhead) {
		if !s.setBuffer(size+inputOverhead, largest) {
			s.setBuffer(0, 0)
			_, err := io.Copy(io.Discard, r)
			return nil, true, err
		}
		data = append(make([]byte, 0, size), data...)
		for len(data) < size {
			n, err := r.Read(data[len(data):size])
			data = data[:len(data)+n]
			if err == io.EOF {
				return data, false, nil
			}
			if err != nil {
				return nil, false, err
			}
		}
	}
}
