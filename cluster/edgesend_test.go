package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// sendTo sends frames of a size to sockets, and checks after each that no more bytes than the limit wait.
func (e *edgeTest) sendTo(frames, size int, sockets ...uint64) {
	e.Helper()
	for range frames {
		e.owner.send(&dohost.LinkOutput{Sockets: sockets, Frame: &dohost.Frame{Data: make([]byte, size)}})
		if b := &e.edge.edge.sends; b.bytes.Load() > b.limit {
			e.Fatalf("%d bytes wait for the clients, the limit is %d", b.bytes.Load(), b.limit)
		}
	}
}

// dialMany connects clients that read nothing.
func (e *edgeTest) dialMany(n int) (all []*websocket.Conn) {
	for range n {
		all = append(all, e.dial())
	}
	synctest.Wait()
	return all
}

// counted is a client that reads, and counts its frames.
type counted struct {
	frames int
	err    error
	ended  chan struct{}
}

func (e *edgeTest) dialReader() *counted {
	c, r := e.dial(), &counted{ended: make(chan struct{})}
	c.SetReadLimit(8 << 20)
	go func() {
		defer close(r.ended)
		for r.err == nil {
			if _, _, r.err = c.Read(e.Context()); r.err == nil {
				r.frames++
			}
		}
	}()
	synctest.Wait()
	return r
}

// want ends the client, which has got all frames.
func (r *counted) want(t *edgeTest, socket uint64, frames int) {
	t.Helper()
	time.Sleep(time.Second)
	t.owner.send(&dohost.LinkOutput{Sockets: []uint64{socket}, Closing: &dohost.Closing{Code: 4001}})
	<-r.ended
	if r.frames != frames || websocket.CloseStatus(r.err) != 4001 {
		t.Errorf("the client that reads has got %d frames, want %d, and %v", r.frames, frames, r.err)
	}
}

// connected returns the number of connections of clients.
func (e *edgeTest) connected() int {
	synctest.Wait()
	return len(e.edge.edge.sends.all())
}

// closing returns the number of clients that are being closed.
func (e *edgeTest) closing() (n int) {
	for _, s := range e.edge.edge.sends.all() {
		s.mu.Lock()
		if s.closeFrame != nil {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

// TestSendBudgetIsFreedFromTheSlowestClient has clients that take nothing for a while, and a client that gets a burst which is larger than the
// frames of each of the others.
func TestSendBudgetIsFreedFromTheSlowestClient(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 8 << 20
		t.dialMany(8)
		fast := t.dialReader()
		for i := range uint64(8) {
			t.sendTo(15, 64<<10, i+1)
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		if n := t.connected(); n != 9 {
			t.Fatalf("%d clients before the burst", n)
		}
		for range 3 {
			t.sendTo(30, 64<<10, 9)
			synctest.Wait()
		}
		if n := t.connected(); n == 9 || n < 7 {
			t.Errorf("%d clients are left", n)
		}
		fast.want(t, 9, 90)
	})
}

// TestSendBudgetCountsAFrameOfManyClientsOnce has clients that take nothing and get the same frames: they are closed together, since only that frees bytes.
func TestSendBudgetCountsAFrameOfManyClientsOnce(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 2 << 20
		t.dialMany(11)
		fast := t.dialReader()
		t.sendTo(1, 50<<10, 11)
		time.Sleep(time.Second)
		t.sendTo(20, 95<<10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		time.Sleep(5 * time.Second)
		t.sendTo(10, 100<<10, 12)
		if n := t.connected(); n != 2 {
			t.Errorf("%d clients are left", n)
		}
		fast.want(t, 12, 10)
	})
}

// TestSendBudgetBoundsSmallFramesOfManyClients has clients that take nothing, and get little each.
func TestSendBudgetBoundsSmallFramesOfManyClients(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 1 << 20
		all := t.dialMany(40)
		fast := t.dialReader()
		b := &t.edge.edge.sends
		for i := range 2000 {
			before := t.closing()
			t.sendTo(1, 1000, uint64(i/50+1))
			if n := b.bytes.Load(); t.closing() > before && n > b.limit-b.limit/sendSpare {
				t.Errorf("%d bytes wait after clients were closed", n)
			}
			time.Sleep(time.Millisecond)
		}
		if n := t.closing(); n < 15 || n > 25 {
			t.Errorf("%d clients are closed", n)
		}
		for range 20 {
			t.sendTo(1, 100<<10, 41)
			synctest.Wait()
		}
		if _, p, err := all[0].Read(t.Context()); len(p) != 1000 { // the frame that was being written
			t.Error(len(p), err)
		}
		t.wantClosed(all[0], 1013)
		fast.want(t, 41, 20)
	})
}

// TestSendBudgetIsFreedFromClosedSockets has clients that take nothing. The object closes the socket of one, and does not have the others any more.
func TestSendBudgetIsFreedFromClosedSockets(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 1 << 20
		t.dialMany(10)
		fast := t.dialReader()
		t.sendTo(9, 100<<10, 1)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Closing: &dohost.Closing{Code: 4001}})
		t.sendTo(9, 10<<10, 2)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{2}, Gone: true})
		time.Sleep(time.Second)
		for range 10 {
			t.sendTo(10, 60<<10, 11)
			synctest.Wait()
		}
		t.sendTo(10, 95<<10, 3)
		synctest.Wait()
		if n := t.connected(); n != 9 {
			t.Errorf("%d clients are left", n)
		}
		fast.want(t, 11, 100)
	})
}

// TestSendBudgetIsFreedFromAnEvictedClient has clients that take nothing, not even the frame that was left when the others were dropped.
func TestSendBudgetIsFreedFromAnEvictedClient(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 64 << 10
		t.dialMany(60)
		fast := t.dialReader()
		for i := range uint64(60) {
			t.sendTo(2, 2000, i+1)
			time.Sleep(time.Millisecond)
		}
		for range 20 {
			t.sendTo(1, 2000, 61)
			synctest.Wait()
		}
		fast.want(t, 61, 20)
	})
}

// TestSendBudgetDividesAFrameAmongItsClients has many clients that are late with the same frames, and a client that takes nothing. The frames of
// the latter are fewer, but it does not share them.
func TestSendBudgetDividesAFrameAmongItsClients(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 2 << 20
		t.dialMany(21)
		all := make([]uint64, 20)
		for i := range all {
			all[i] = uint64(i + 1)
		}
		t.sendTo(12, 100<<10, all...)
		t.sendTo(9, 80<<10, 21)
		time.Sleep(2 * time.Second)
		t.sendTo(3, 80<<10, 21)
		if n := t.connected(); n != 20 {
			t.Errorf("%d clients are left", n)
		}
	})
}

// TestSendBudgetCountsKeptFramesAsFreed has clients that take nothing, with a small frame each that is being written: no other client is closed
// because these frames stay at first.
func TestSendBudgetCountsKeptFramesAsFreed(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 64 << 10
		t.dialMany(17)
		for i := range uint64(15) {
			t.owner.send(&dohost.LinkOutput{Sockets: []uint64{i + 1}, Frame: &dohost.Frame{Data: make([]byte, 4000)}})
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{16}, Frame: &dohost.Frame{Data: make([]byte, 2000)}})
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{17}, Frame: &dohost.Frame{Data: make([]byte, 3000)}})
		if n := t.closing(); n == 0 || n > 3 {
			t.Errorf("%d clients are being closed", n)
		}
	})
}

// TestSendBudgetKeepsTheCodeOfAClosedSocket has a client that takes nothing, and a socket that its object has closed before the client is evicted.
func TestSendBudgetKeepsTheCodeOfAClosedSocket(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.sends.limit = 64 << 10
		c := t.dialMany(2)[0]
		t.sendTo(10, 2000, 1)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Closing: &dohost.Closing{Code: 4001}})
		time.Sleep(time.Second)
		t.sendTo(25, 2000, 2)
		if _, p, err := c.Read(t.Context()); len(p) != 2000 { // the frame that was being written
			t.Error(len(p), err)
		}
		t.wantClosed(c, 4001)
	})
}
