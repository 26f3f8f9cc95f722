package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// storedOutputs are the rows of outputs that edges may not have received.
var storedOutputs = dohost.Collection[struct{}]{Name: "dohost.sockets.outputs", Key: func(struct{}) string { return "" }}

// relayTest has a host with a tally, an edge, and two sockets of it.
type relayTest struct {
	t      *testing.T
	ctx    context.Context
	h      *dohosttest.Host
	edge   *memoryEdge
	a, b   *edgeSocket
	closed []string
}

func runRelay(t *testing.T, handlers *dohost.Handlers[tally], f func(r *relayTest)) {
	t.Helper()
	r := &relayTest{}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{tallyClass(&r.closed, handlers)}}, func(t *testing.T, h *dohosttest.Host) {
		r.t, r.h, r.ctx = t, h, t.Context()
		r.edge = newMemoryEdge("edge", tallies.Get(h, "x").ID(), h.Host)
		r.a, r.b = r.connect("/"), r.connect("/")
		r.edge.ensureLink(r.ctx)
		f(r)
	})
}

func (r *relayTest) connect(path string) *edgeSocket {
	r.t.Helper()
	s, err := r.edge.connect(r.ctx, path)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *relayTest) send(s *edgeSocket, in dohost.LinkInput) {
	r.t.Helper()
	if err := r.edge.send(r.ctx, s, in); err != nil {
		r.t.Fatal(err)
	}
}

// do runs f in the object.
func (r *relayTest) do(f func(ctx context.Context, t *tally) error) {
	r.t.Helper()
	if err := tallies.Get(r.h, "x").Do(r.ctx, f); err != nil {
		r.t.Fatal(err)
	}
}

// expect checks the object's count and number of sockets, and the ends of sockets that it was notified of.
func (r *relayTest) expect(count, sockets int, closed ...string) {
	r.t.Helper()
	r.do(func(ctx context.Context, t *tally) error {
		n, _, err := dohost.Get[int](ctx, t.st.Storage(), "count")
		if all := t.st.Sockets(""); n != count || len(all) != sockets || !slices.Equal(r.closed, closed) {
			r.t.Errorf("the object has counted %d frames, has %d sockets, and the ends %q, want %d, %d and %q", n, len(all), r.closed, count, sockets, closed)
		}
		return err
	})
}

// frames checks the frames that a client gets.
func (r *relayTest) frames(s *edgeSocket, want ...string) {
	r.t.Helper()
	r.h.Advance(time.Second)
	r.edge.mu.Lock()
	defer r.edge.mu.Unlock()
	if !slices.Equal(s.frames, want) {
		r.t.Errorf("socket %d gets %q, want %q", s.number, s.frames, want)
	}
}

// outputs checks the number of rows of outputs.
func (r *relayTest) outputs(want int) {
	r.t.Helper()
	r.do(func(ctx context.Context, t *tally) error {
		n, err := storedOutputs.Count(ctx, t.st.Storage(), nil)
		if n != want {
			r.t.Errorf("%d outputs are stored, want %d", n, want)
		}
		return err
	})
}

// TestRelayDropsRepeatedInputs delivers an input twice, and one with a gap.
func TestRelayDropsRepeatedInputs(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		in := text("one")
		r.send(r.a, in)
		in.Socket, in.Number = r.a.number, 1
		if err := r.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		r.frames(r.a, "1 one new")
		r.expect(1, 2)
		in.Number = 3
		if err := r.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		r.frames(r.b, "1 one new")
		r.expect(1, 1, "1011 a frame is missing")
		if !r.a.gone || r.a.closing == nil || r.a.closing.Code != dohost.CloseFailed {
			t.Errorf("the edge closes the socket with %v, gone %v", r.a.closing, r.a.gone)
		}
	})
}

// TestRelayHibernates evicts an idle object: the link stays, and later outputs follow the earlier ones.
func TestRelayHibernates(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.send(r.a, text("attach"))
		r.h.Advance(time.Minute)
		if r.h.Host().IsLive(r.edge.id) {
			t.Fatal("the object is not evicted")
		}
		r.send(r.a, text("two"))
		r.frames(r.b, "1 attach new", "2 two attached")
		r.expect(2, 2)
		if r.edge.links != 1 {
			t.Errorf("the edge has linked %d times", r.edge.links)
		}
	})
}

// TestRelayEndsTheSocketsOfALostEdge ends an edge, while its object lives and while its host restarts.
func TestRelayEndsTheSocketsOfALostEdge(t *testing.T) {
	const lost = "1006 the process with the connection is lost"
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.edge.link.Close()
		r.h.Advance(29 * time.Second)
		r.expect(0, 2)
		r.h.Advance(2 * time.Second)
		r.expect(0, 0, lost, lost)
	})
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		lostEdge := newMemoryEdge("lost", r.edge.id, r.h.Host) // it ends before its first link
		if _, err := lostEdge.connect(r.ctx, "/"); err != nil {
			t.Fatal(err)
		}
		r.expect(0, 3)
		r.h.Advance(31 * time.Second)
		r.expect(0, 2, lost)
	})
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.send(r.a, text("attach"))
		r.h.Kill()
		r.expect(1, 2)
		r.h.Advance(31 * time.Second)
		r.expect(1, 0, lost, lost)
	})
}

// TestRelayReplacesTheLink links twice. The second time the edge has lost socket a; it has not counted socket b yet.
func TestRelayReplacesTheLink(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		former := r.edge.link
		link, err := r.h.Host().LinkSockets(r.ctx, r.edge.id, &dohost.LinkOptions{Edge: "edge", Next: r.b.number, After: r.edge.after, Send: r.edge.receive})
		if err != nil {
			t.Fatal(err)
		}
		r.edge.link = link
		r.h.Advance(time.Second)
		select {
		case <-former.Done():
		default:
			t.Error("the former link has not ended")
		}
		if err := former.Deliver(&dohost.LinkInput{Socket: 2, Number: 1}); !errors.Is(err, dohost.ErrClosed) {
			t.Errorf("the former link delivers: %v", err)
		}
		r.expect(0, 1, "1006 the connection is lost")
		r.send(r.b, text("one"))
		r.expect(1, 1, "1006 the connection is lost")
	})
}

// TestRelayEndsWithDeleteAll deletes the rows of the sockets.
func TestRelayEndsWithDeleteAll(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.send(r.a, text("one"))
		r.do(func(ctx context.Context, t *tally) error { return t.st.Storage().DeleteAll(ctx) })
		r.expect(0, 0)
		r.outputs(0)
		if !r.a.gone || !r.b.gone {
			t.Error("the edge keeps the sockets")
		}
	})
}

// TestRelayRollback rolls back each effect on a socket.
func TestRelayRollback(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.do(func(ctx context.Context, o *tally) error {
			s, undo := o.st.Sockets("")[0], errors.New("undo")
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(s.Send(ctx, dohost.Frame{Data: []byte("lost")}), s.SetAttachment(ctx, []byte("lost")), s.SetAttachment(ctx, []byte("lost, too")),
					s.Close(ctx, 3000, "lost"), undo)
			})
			if !errors.Is(err, undo) || string(s.Attachment()) != "new" {
				t.Errorf("after the rollback with %v the attachment is %q", err, s.Attachment())
			}
			return s.Send(ctx, dohost.Frame{Data: []byte("sent")})
		})
		r.frames(r.a, "sent")
		r.expect(0, 2)
		r.outputs(1)
		r.h.Kill()
		r.send(r.a, text("one"))
		r.frames(r.a, "sent", "1 one new")
	})
}

// TestRelayTrimsOutputs acknowledges outputs, and then writes.
func TestRelayTrimsOutputs(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		for i := range 5 {
			r.send(r.a, text(fmt.Sprint(i)))
		}
		r.h.Advance(time.Second)
		r.outputs(1)
	})
}

// TestRelayDropsOutputsOfAnotherHistory has the row of an output from before a standby was promoted.
func TestRelayDropsOutputsOfAnotherHistory(t *testing.T) {
	type output struct {
		Position string
		To       []struct {
			Edge    string
			Numbers []uint64
		}
	}
	rows := dohost.Collection[output]{Name: storedOutputs.Name, Key: func(o output) string { return o.Position }}
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		for _, fork := range []string{"00000000", "ffffffff"} {
			r.do(func(ctx context.Context, o *tally) error {
				row := output{Position: fork + strings.Repeat("0", 48)}
				row.To = append(row.To, struct {
					Edge    string
					Numbers []uint64
				}{"edge", []uint64{r.a.number}})
				return rows.Insert(ctx, o.st.Storage(), row)
			})
		}
		r.h.Kill()
		for range 3 {
			r.send(r.a, text("one"))
		}
		r.frames(r.a, "1 one new", "2 one new", "3 one new")
		r.outputs(1)
	})
}

// TestRelayTrimsAFewOutputsPerEvent acknowledges many outputs.
func TestRelayTrimsAFewOutputsPerEvent(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		for range 20 {
			r.do(func(ctx context.Context, o *tally) (err error) {
				for range 100 {
					err = errors.Join(err, o.st.Broadcast(ctx, dohost.Frame{Data: []byte("x")}, o.st.Sockets("")))
				}
				return err
			})
		}
		r.h.Advance(time.Second)
		r.edge.link.Acknowledge(r.edge.after)
		r.outputs(2000)
		r.send(r.a, text("one"))
		r.outputs(2000 - 2*64 + 1)
	})
}

// TestRelayEndsTheSocketsOfASlowEdge sends more than an edge receives.
func TestRelayEndsTheSocketsOfASlowEdge(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		frame := dohost.Frame{Data: make([]byte, 1<<20)}
		for range 40 {
			r.do(func(ctx context.Context, t *tally) error { return t.st.Broadcast(ctx, frame, t.st.Sockets("")) })
		}
		const slow = "1013 too many frames wait for the client"
		r.expect(0, 0, slow, slow)
		r.h.Advance(time.Second)
		if !r.a.gone || r.a.closing == nil || r.a.closing.Code != dohost.CloseBusy {
			t.Errorf("the edge closes the socket with %v", r.a.closing)
		}
		other := newMemoryEdge("other", r.edge.id, r.h.Host)
		c, err := other.connect(r.ctx, "/")
		for range 2 { // the second one deletes the outputs that the first edge had not received
			err = errors.Join(err, other.send(r.ctx, c, text("one")))
		}
		if err != nil || c.gone {
			t.Errorf("the socket of another edge: %v, gone %v", err, c.gone)
		}
		r.outputs(1)
	})
}

// TestRelayLinksInTime links again before the sockets end.
func TestRelayLinksInTime(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		for range 3 {
			r.edge.link.Close()
			r.h.Advance(29 * time.Second)
			r.edge.ensureLink(r.ctx)
		}
		r.h.Advance(time.Minute)
		r.expect(0, 2)
	})
}

// TestRelayKeepsClosedSockets restarts a host after the object has closed a socket, and before the client has.
func TestRelayKeepsClosedSockets(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.send(r.a, text("bye"))
		r.h.Kill()
		r.expect(1, 1)
		r.edge.ensureLink(r.ctx)
		r.send(r.b, text("two"))
		r.frames(r.a, "1 bye new")
		if r.a.closing == nil || r.a.closing.Code != 3000 {
			t.Errorf("the edge closes the socket with %v", r.a.closing)
		}
		r.send(r.a, dohost.LinkInput{Closing: r.a.closing})
		r.expect(2, 1, "3000 bye")
	})
}

// TestRelayTakesTheLinkAsAnAcknowledgment restarts a host: the next link names the last output that the edge has.
func TestRelayTakesTheLinkAsAnAcknowledgment(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		for i := range 5 {
			r.send(r.a, text(fmt.Sprint(i)))
		}
		r.h.Advance(time.Second)
		r.h.Kill()
		r.edge.ensureLink(r.ctx)
		if err := r.edge.link.Deliver(&dohost.LinkInput{Socket: r.a.number, Number: 6}); err != nil {
			t.Fatal(err)
		}
		r.h.Advance(time.Second)
		r.outputs(1)
	})
}

// TestRelayOfADelegatedRequest delegates a handshake: the edge knows the first object only.
func TestRelayOfADelegatedRequest(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
		defer cancel()
		if _, err := r.edge.connect(ctx, "/delegate"); err == nil {
			t.Error("another object has accepted a durable socket")
		}
	})
}

// TestRelayOfAnAcceptThatIsRolledBack accepts a socket in a transaction that fails.
func TestRelayOfAnAcceptThatIsRolledBack(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
		defer cancel()
		if _, err := r.edge.connect(ctx, "/undo"); err == nil {
			t.Error("the client is accepted")
		}
		r.expect(0, 2)
	})
}

// TestRelayKeepsOpeningSockets links while the object has not answered a handshake, and with a socket that it does not have.
func TestRelayKeepsOpeningSockets(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		opening, lost := &edgeSocket{number: 8, opening: true}, &edgeSocket{number: 9}
		r.edge.sockets[8], r.edge.sockets[9], r.edge.next = opening, lost, 10
		gone := map[uint64]bool{}
		o := &dohost.LinkOptions{Edge: "edge", Next: 10, After: r.edge.after, Send: func(o *dohost.LinkOutput) {
			for _, number := range o.Sockets {
				gone[number] = gone[number] || o.Gone
			}
		}}
		for _, s := range r.edge.sockets {
			o.Sockets = append(o.Sockets, dohost.LinkedSocket{Number: s.number, Opening: s.opening})
		}
		if _, err := r.h.Host().LinkSockets(r.ctx, r.edge.id, o); err != nil {
			t.Fatal(err)
		}
		r.h.Advance(time.Second)
		if len(gone) != 1 || !gone[9] {
			t.Errorf("the object does not have the sockets %v, want 9", gone)
		}
		r.expect(0, 2)
	})
}

// TestRelayCountsStoredRows sends frames that are rolled back or deleted: they do not count as outputs that wait.
func TestRelayCountsStoredRows(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		frame, undo := dohost.Frame{Data: make([]byte, 1<<20)}, errors.New("undo")
		for range 40 {
			r.do(func(ctx context.Context, o *tally) error {
				err := dohost.Transaction(ctx, func(ctx context.Context) error {
					return errors.Join(o.st.Broadcast(ctx, frame, o.st.Sockets("")), undo)
				})
				if !errors.Is(err, undo) {
					t.Error(err)
				}
				return nil
			})
		}
		r.expect(0, 2)
		send := func() {
			for range 20 {
				r.do(func(ctx context.Context, o *tally) error { return o.st.Broadcast(ctx, frame, o.st.Sockets("")) })
			}
		}
		send()
		r.do(func(ctx context.Context, o *tally) error { return o.st.Storage().DeleteAll(ctx) })
		r.connect("/")
		send()
		r.expect(0, 1)
	})
}

// TestRelayLimits passes frames and options that are too large or invalid.
func TestRelayLimits(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.do(func(ctx context.Context, o *tally) error {
			err := o.st.Sockets("")[0].Send(ctx, dohost.Frame{Data: make([]byte, 1<<20+1)})
			if limit, ok := errors.AsType[*dohost.LimitError](err); !ok || limit.Limit != 1<<20 {
				t.Errorf("a frame of more than 1 MiB: %v", err)
			}
			return nil
		})
		r.send(r.a, dohost.LinkInput{Frame: dohost.Frame{Text: true, Data: []byte{0xff}}})
		r.expect(0, 1, "1007 dohost: the text frame is not valid UTF-8")
		big := dohost.LinkInput{Socket: r.b.number, Number: 1, Frame: dohost.Frame{Data: bytes.Repeat([]byte("x"), 33<<20)}}
		if limit, ok := errors.AsType[*dohost.LimitError](r.edge.link.Deliver(&big)); !ok {
			t.Errorf("a large frame: %v", limit)
		}
		for _, o := range []dohost.LinkOptions{{}, {Edge: "edge"}, {Edge: string(make([]byte, 65)), Send: r.edge.receive}} {
			if _, err := r.h.Host().LinkSockets(r.ctx, r.edge.id, &o); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("LinkSockets with %+v: %v", o, err)
			}
		}
		if _, err := r.h.Host().LinkSockets(r.ctx, dohost.ID{Class: "none", Name: "x"}, &dohost.LinkOptions{Edge: "edge", Send: r.edge.receive}); !errors.Is(err, dohost.ErrNotFound) {
			t.Errorf("LinkSockets of a class without sockets: %v", err)
		}
	})
}

// TestRelayClosesForAnOperator closes sockets as an operator.
func TestRelayClosesForAnOperator(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		if n := r.h.Host().CloseSockets(r.edge.id, ""); n != 2 {
			t.Errorf("closed %d sockets", n)
		}
		r.h.Advance(time.Second)
		const closed = "1008 closed by an operator"
		r.expect(0, 0, closed, closed)
		if r.a.closing == nil || r.a.closing.Code != 1008 {
			t.Errorf("the edge closes the socket with %v", r.a.closing)
		}
	})
}

// TestRelayAuthorizesAgain revokes the access of a client while the host restarts.
func TestRelayAuthorizesAgain(t *testing.T) {
	revoked := "nobody"
	var access []string
	handlers := &dohost.Handlers[tally]{Authorize: func(_ context.Context, q *dohost.AccessRequest) (dohost.Access, error) {
		user := q.Request.URL.Query().Get("user")
		if user == revoked || q.Kind != dohost.AccessSocket {
			return dohost.Access{}, nil
		}
		return dohost.Access{Identity: user, Rights: dohost.RightsReadOnly}, nil
	}}
	runRelay(t, handlers, func(r *relayTest) {
		c, d := r.connect("/?user=c&tag=c"), r.connect("/?user=d")
		revoked = "d"
		r.h.Kill()
		granted := func() {
			r.do(func(_ context.Context, t *tally) error {
				a, ok := t.st.Sockets("c")[0].Access()
				access = append(access, fmt.Sprint(a.Identity, a.Rights, ok))
				return nil
			})
		}
		granted()
		r.send(c, text("one"))
		granted()
		if want := []string{"<nil> 0 true", "c1 true"}; !slices.Equal(access, want) {
			t.Errorf("the accesses before and after the link are %q, want %q", access, want)
		}
		r.frames(c, "1 one new")
		if d.closing == nil || d.closing.Code != 1008 {
			t.Errorf("the socket of the revoked client is closed with %v", d.closing)
		}
		r.expect(1, 3, "1008 access denied")
	})
}

// TestRelayRefusesASecondSocketOfAName names a socket twice.
func TestRelayRefusesASecondSocketOfAName(t *testing.T) {
	runRelay(t, &dohost.Handlers[tally]{}, func(r *relayTest) {
		r.edge.next = 1
		r.edge.sockets = map[uint64]*edgeSocket{}
		ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
		defer cancel()
		if _, err := r.edge.connect(ctx, "/"); err == nil {
			t.Error("the second socket is accepted")
		}
		r.expect(0, 2)
	})
}
