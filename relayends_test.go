package dohost_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// rows returns the number of outputs that are stored.
func (t *probeTest) rows() (n int) {
	t.Helper()
	t.do(func(ctx context.Context, p *probe) (err error) {
		n, err = storedOutputs.Count(ctx, p.st.Storage(), nil)
		return err
	})
	return n
}

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

// TestRelaySkipsTheOutputsOfEndedSockets links after all sockets of the edge have ended, with the position of an edge that has forgotten its own.
// Another edge holds up the rows.
func TestRelaySkipsTheOutputsOfEndedSockets(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		other := newMemoryEdge("other", t.edge.id, t.edge.host)
		if _, err := other.connect(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		other.ensureLink(t.Context())
		t.edge.link.Close()
		t.broadcast(3, 10)
		time.Sleep(31 * time.Second)
		s := t.connect("/")
		outputs := 0
		o := &dohost.LinkOptions{Edge: "edge", Next: 9, Sockets: []dohost.LinkedSocket{{Number: s.number}}, Send: func(o *dohost.LinkOutput) {
			if o.Position != "" {
				outputs++
			}
		}}
		if _, err := t.h.LinkSockets(t.Context(), t.edge.id, o); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Second); outputs != 0 || t.rows() != 3 {
			t.Errorf("the link gets %d outputs of %d", outputs, t.rows())
		}
	})
}

// TestRelayWaitsForTheLinkOfLaterSockets has an edge without a link that has a socket for a moment, and another one much later.
func TestRelayWaitsForTheLinkOfLaterSockets(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.edge.link.Close()
		t.h.CloseSockets(t.edge.id, "")
		time.Sleep(29 * time.Second)
		t.s = t.connect("/")
		time.Sleep(2 * time.Second)
		t.wantSockets(1)
		time.Sleep(29 * time.Second)
		t.wantSockets(0)
	})
}

// TestRelayWaitsForTheLinkOfSocketsAfterDeleteAll has an edge without a link: the object deletes all its data, and accepts another socket later.
func TestRelayWaitsForTheLinkOfSocketsAfterDeleteAll(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.edge.link.Close()
		t.do(func(ctx context.Context, p *probe) error { return p.st.Storage().DeleteAll(ctx) })
		time.Sleep(29 * time.Second)
		t.s = t.connect("/")
		time.Sleep(2 * time.Second)
		t.wantSockets(1)
		time.Sleep(29 * time.Second)
		t.wantSockets(0)
	})
}

// TestRelayDeletesRowsAfterARollback rolls back the event that would delete the rows of received outputs.
func TestRelayDeletesRowsAfterARollback(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.broadcast(100, 10)
		t.edge.link.Acknowledge(t.edge.after)
		t.do(func(ctx context.Context, p *probe) error {
			undo := errors.New("undo")
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				all := p.st.Sockets("")
				return errors.Join(p.st.Broadcast(ctx, dohost.Frame{}, all), p.st.Broadcast(ctx, dohost.Frame{}, all), undo)
			})
			if !errors.Is(err, undo) {
				t.Error(err)
			}
			return nil
		})
		if n := t.rows(); n != 100 {
			t.Errorf("%d rows after the rollback", n)
		}
		for range 2 {
			t.broadcast(1, 10)
		}
		if n := t.rows(); n != 2 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestRelayDeletesRowsAfterTheLastSocket ends the sockets of an object with many outputs.
func TestRelayDeletesRowsAfterTheLastSocket(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.broadcast(300, 10)
		if n := t.rows(); n != 300 {
			t.Errorf("%d rows", n)
		}
		if err := t.edge.send(t.Context(), t.s, dohost.LinkInput{Closing: &dohost.Closing{Code: 1000}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := t.rows(); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestRelayDeletesRowsAfterAnOperatorHasClosedTheLastSocket has few outputs, which one event deletes, and many.
func TestRelayDeletesRowsAfterAnOperatorHasClosedTheLastSocket(t *testing.T) {
	for _, outputs := range []int{10, 300} {
		runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
			t.broadcast(outputs, 10)
			if n := t.rows(); n != outputs {
				t.Errorf("%d rows of %d outputs", n, outputs)
			}
			t.h.CloseSockets(t.edge.id, "")
			time.Sleep(time.Second)
			if n := t.rows(); n != 0 {
				t.Errorf("%d rows of %d outputs are left", n, outputs)
			}
		})
	}
}

// TestRelayDeletesRowsThatTheNextIncarnationLoads ends the incarnation when the end of the last socket is durable, with some of the rows.
func TestRelayDeletesRowsThatTheNextIncarnationLoads(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.broadcast(300, 10)
		t.fs.OnWrite(func(op, _ string, _ int64) error {
			if op == "sync" {
				t.h.Evict(t.edge.id, dohost.EndFence)
			}
			return nil
		})
		in := dohost.LinkInput{Socket: t.s.number, Number: 2, Closing: &dohost.Closing{Code: 1000}}
		if err := t.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		t.fs.OnWrite(nil)
		t.wantSockets(0)
		time.Sleep(time.Minute)
		if n := t.rows(); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestRelayOfAClosedThatTakesTooLong ends a socket: its handler keeps the turn for longer than its limit each time.
func TestRelayOfAClosedThatTakesTooLong(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{OnSocket: &dohost.SocketHandlers[probe]{Timeout: time.Second}}, func(t *probeTest) {
		t.closed = func(context.Context) { time.Sleep(5 * time.Second) }
		if err := t.edge.send(t.Context(), t.s, dohost.LinkInput{Closing: &dohost.Closing{Code: 1000}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		t.wantSockets(0)
		t.want("one <nil>", "closed 1000", "closed 1000", "closed 1000")
	})
}

// TestRelayOfAnIncarnationThatEndsBeforeItsAnswer ends the incarnation after the row of a socket is durable: the edge learns that the object may
// have the socket.
func TestRelayOfAnIncarnationThatEndsBeforeItsAnswer(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.fs.OnWrite(func(op, _ string, _ int64) error {
			if op == "sync" {
				t.h.Evict(t.edge.id, dohost.EndFence)
			}
			return nil
		})
		w := httptest.NewRecorder()
		r := t.s.request.Clone(t.Context())
		t.h.ServeObject(w, dohost.RelayRequest(r, dohost.RelayedSocket{Edge: "edge", Number: 7}), t.edge.id)
		t.fs.OnWrite(nil)
		t.wantSockets(2)
		if w.Code != 502 {
			t.Errorf("the answer is %d: %s", w.Code, w.Body)
		}
	})
}

// TestRelayEndsSocketsWhileClosedWaits loses an edge with two sockets: Closed of the first one waits for long, without the turn.
func TestRelayEndsSocketsWhileClosedWaits(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.connect("/")
		t.closed = func(ctx context.Context) {
			if err := dohost.Sleep(ctx, time.Hour); err != nil {
				t.Error(err)
			}
		}
		t.edge.link.Close()
		time.Sleep(31 * time.Second)
		t.want("one <nil>", "closed 1006", "closed 1006")
		t.wantSockets(0)
		time.Sleep(time.Hour)
	})
}

// TestRelayIgnoresPositionsThatItHasNotSent acknowledges outputs of the future.
func TestRelayIgnoresPositionsThatItHasNotSent(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.broadcast(1, 10)
		for _, future := range []string{t.edge.after[:8] + "g", "g"} {
			t.edge.link.Acknowledge(future)
			t.broadcast(1, 10)
			t.broadcast(1, 10)
		}
		if n := t.rows(); n != 5 {
			t.Errorf("%d rows of 5 outputs that the edge has not acknowledged", n)
		}
	})
}

// TestRelayOfABroadcastToTooManySockets repeats a socket in a list of recipients.
func TestRelayOfABroadcastToTooManySockets(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.do(func(ctx context.Context, p *probe) error {
			err := p.st.Broadcast(ctx, dohost.Frame{}, slices.Repeat(p.st.Sockets(""), dohost.MaxSockets+1))
			if limit, ok := errors.AsType[*dohost.LimitError](err); !ok || limit.Limit != dohost.MaxSockets {
				t.Error(err)
			}
			return nil
		})
	})
}

// TestRelayRefusesAFrameBeforeTheEnd delivers a frame of a client that Authorize has refused: the event that ends the socket is repeated later,
// since the object is overloaded.
func TestRelayRefusesAFrameBeforeTheEnd(t *testing.T) {
	refuse := atomic.Bool{}
	handlers := &dohost.Handlers[probe]{Authorize: func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		if refuse.Load() {
			return dohost.Access{}, nil
		}
		return dohost.Access{Identity: "a", Rights: dohost.RightsReadWrite}, nil
	}}
	runProbe(t, handlers, func(t *probeTest) {
		refuse.Store(true)
		t.edge.link.Close()
		release, end := t.fs.HoldSyncs(), make(chan struct{})
		call := func(f func(ctx context.Context, p *probe) error) {
			go func() { _ = probes.Get(t.h, "x").Do(t.Context(), f) }()
			synctest.Wait()
		}
		call(func(ctx context.Context, p *probe) error { return dohost.Put(ctx, p.st.Storage(), "k", 1) })
		linked := make(chan struct{})
		go func() { // the link begins when the row is durable
			t.edge.ensureLink(t.Context())
			close(linked)
		}()
		synctest.Wait()
		call(func(context.Context, *probe) error { <-end; return nil })
		for i := 0; ; i++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := probes.Get(t.h, "x").Do(ctx, func(context.Context, *probe) error { return nil })
			cancel()
			if errors.Is(err, dohost.ErrOverloaded) {
				break
			}
			call(func(context.Context, *probe) error { return nil })
			if i > 5000 {
				t.Fatal(err)
			}
		}
		release()
		<-linked
		synctest.Wait()
		in := text("two")
		in.Socket, in.Number = t.s.number, 2
		if err := t.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(end)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if want := []string{"one a", "closed 1008"}; !slices.Equal(t.noted, want) {
			t.Errorf("the handlers got %q, want %q", t.noted, want)
		}
	})
}

// TestRelayNamesTheEndOfASocket inspects the object in the handler of the end.
func TestRelayNamesTheEndOfASocket(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		var pins []dohost.Pin
		t.closed = func(ctx context.Context) {
			info, err := t.h.Inspect(ctx, t.edge.id)
			if pins = info.Pins; err != nil {
				t.Error(err)
			}
		}
		if err := t.edge.send(t.Context(), t.s, dohost.LinkInput{Closing: &dohost.Closing{Code: 1000}}); err != nil {
			t.Fatal(err)
		}
		t.want("one <nil>", "closed 1000")
		if !slices.Contains(pins, dohost.Pin{Reason: "event socket closed"}) {
			t.Errorf("the object is in memory because of %+v", pins)
		}
	})
}
