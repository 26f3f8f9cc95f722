package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// TestEdgeCountsAFrameOfManyClientsOnce sends a frame to clients that all read.
func TestEdgeCountsAFrameOfManyClientsOnce(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const size = 1 << 20
		var all []*websocket.Conn
		var numbers []uint64
		for i := range maxSends/size + 20 {
			c := t.dial()
			c.SetReadLimit(2 * size)
			all, numbers = append(all, c), append(numbers, uint64(i+1))
		}
		synctest.Wait()
		t.owner.send(&dohost.LinkOutput{Sockets: numbers, Frame: &dohost.Frame{Data: make([]byte, size)}})
		if n := t.edge.edge.unsent.Load(); n < size || n > 2*size {
			t.Errorf("%d bytes wait for the clients", n)
		}
		for i, c := range all {
			if _, p, err := c.Read(t.Context()); err != nil || len(p) != size {
				t.Fatalf("client %d gets %d bytes, %v", i, len(p), err)
			}
		}
		time.Sleep(time.Second)
		if n := t.edge.edge.unsent.Load(); n != 0 {
			t.Errorf("%d bytes wait after all were read", n)
		}
	})
}
