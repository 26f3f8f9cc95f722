package socket

import (
	"testing"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/runtime"
)

var testLimits = Limits{MaxFrame: 4 << 20, Reads: budget.New(256 << 20), SendBudget: 256 << 20}

// TestSendQueueOverflowIsBounded has senders that are faster than the goroutine that closes sockets: it does not run.
func TestSendQueueOverflowIsBounded(t *testing.T) {
	limits := testLimits
	limits.SendBudget = 1 << 20
	table := New(limits)
	table.overflowOnce.Do(func() {}) // overflowLoop does not start
	accept := func() *Conn {
		c, err := table.Accept(runtime.ID{Class: "c", Name: "a"}, &Handlers{}, &Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	waits, empty := accept(), accept()
	waits.Push(make(Packed, 10))
	table.queue.bytes.Add(2 << 20) // of others
	empty.Push(make(Packed, 10))
	waits.Push(make(Packed, 10))
	large := accept()
	large.Push(make(Packed, maxBatch+1))
	for _, c := range []*Conn{waits, empty, large} {
		if want := c != empty; (c.closeFrame != nil && c.closeFrame.Code == Busy) != want {
			t.Errorf("closed: %v, want %t", c.closeFrame, want)
		}
	}
	if n := table.queue.bytes.Load() - 2<<20; n != 10 {
		t.Errorf("%d bytes are counted, want those of one frame", n)
	}
	for _, c := range []*Conn{waits, empty, large} {
		c.Remove()
		c.Push(make(Packed, 10)) // it has ended
	}
	if n := table.queue.bytes.Load() - 2<<20; n != 0 {
		t.Errorf("%d bytes are counted for sockets that have ended", n)
	}
	table.Close()
}
