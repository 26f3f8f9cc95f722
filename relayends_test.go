package dohost_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// broadcast makes the object send n frames of a size to all sockets, in one event.
func (t *probeTest) broadcast(n, size int) {
	t.Helper()
	t.do(func(ctx context.Context, p *probe) (err error) {
		for range n {
			err = errors.Join(err, p.st.Broadcast(ctx, dohost.Frame{Data: make([]byte, size)}, p.st.Sockets("")))
		}
		return err
	})
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestRelayLinksAgainAfterARestore links with the position of another history: the sockets of both sides end, and later ones stay.
func TestRelayLinksAgainAfterARestore(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.edge.link.Close()
		t.edge.link, t.edge.after = nil, strings.Repeat("0", 56)
		t.edge.ensureLink(t.Context())
		t.want("one <nil>", "closed 1006")
		if !t.s.gone {
			t.Error("the edge keeps the socket")
		}
		t.s = t.connect("/")
		t.edge.link.Close()
		t.edge.ensureLink(t.Context())
		t.send("two")
		t.broadcast(1, 3)
		t.want("one <nil>", "closed 1006", "two <nil>")
		if len(t.s.frames) != 1 {
			t.Errorf("the client gets %d frames", len(t.s.frames))
		}
	})
}
