package dohost

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/objectstore"
)

// TestRelayOfAnEndedIncarnationIsNotAdded ends an incarnation before the relay that it has loaded is added: the next one would use old rows.
func TestRelayOfAnEndedIncarnationIsNotAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rooms Namespace[struct{}] = "room"
		c := Bind(rooms, func(context.Context, *State) (*struct{}, error) { return &struct{}{}, nil }, nil)
		h, err := Open("data", &Options{fs: objectstore.NewMemFS()}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		room := rooms.Get(h, "x")
		for _, ends := range []bool{false, true} {
			_ = room.Do(t.Context(), func(ctx context.Context, _ *struct{}) error {
				if ends {
					h.Evict(room.ID(), EndFence)
				}
				r := &relay{host: h, id: room.ID(), done: make(chan struct{})}
				if err := h.relays.add(ctx, r); errors.Is(err, ErrFenced) != ends || (h.relays.of(r.id) == r) == ends {
					t.Errorf("the relay of an incarnation that has ended, %v: %v", ends, err)
				}
				return nil
			})
			if r := h.relays.of(room.ID()); r != nil {
				h.relays.drop(r)
			}
		}
	})
}

// TestRelayIsNotGivenToAnEndedIncarnation has code that runs after the end of its incarnation, while the next one runs: DeleteAll of the first would
// end the sockets of the next one.
func TestRelayIsNotGivenToAnEndedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type room struct{ st *State }
		const rooms Namespace[room] = "room"
		c := Bind(rooms, func(_ context.Context, st *State) (*room, error) { return &room{st}, nil }, &Handlers[room]{
			OnSocket: &SocketHandlers[room]{Durable: true, Message: func(*room, context.Context, *Socket, Frame) error { return nil }},
		})
		h, err := Open("data", &Options{fs: objectstore.NewMemFS()}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		x := rooms.Get(h, "x")
		done := make(chan struct{}) // Do returns when the incarnation ends
		_ = x.Do(t.Context(), func(_ context.Context, r *room) error {
			defer close(done)
			if r.st.relay() == nil {
				t.Error("the incarnation has no relay")
			}
			h.Evict(x.ID(), EndFence)
			if r.st.relay() != nil {
				t.Error("the incarnation has a relay after its end")
			}
			next := make(chan error, 1)
			go func() {
				next <- x.Do(t.Context(), func(_ context.Context, r *room) error {
					if r.st.relay() == nil {
						t.Error("the next incarnation has no relay")
					}
					return nil
				})
			}()
			if err := <-next; err != nil || h.relays.of(x.ID()) == nil || r.st.relay() != nil {
				t.Errorf("the incarnation that has ended gets the relay of the next one, %v", err)
			}
			return nil
		})
		<-done
	})
}

// TestRelayNamesSlowEdgesOnce exceeds the limit of outputs by one byte: an edge that has received the oldest output is not slow, and no edge is named twice.
func TestRelayNamesSlowEdgesOnce(t *testing.T) {
	r := &relay{acked: map[string]string{"equal": "1", "after": "2"}, slow: map[string]bool{}}
	to := []recipients{{Edge: "behind"}, {Edge: "equal"}, {Edge: "after"}}
	if slow := r.add(&outputRow{Position: "1", To: to}); slow != nil {
		t.Errorf("%q are slow", slow)
	}
	r.bytes = maxOutputs
	if slow := r.add(&outputRow{Position: "2", To: to, Data: []byte{1}}); !slices.Equal(slow, []string{"behind"}) {
		t.Errorf("%q are slow, want behind", slow)
	}
	if slow := r.add(&outputRow{Position: "3", To: to}); slow != nil {
		t.Errorf("%q are slow again", slow)
	}
}

// TestRelayDeletesOutputsThatAllHaveReceived asks for the oldest output.
func TestRelayDeletesOutputsThatAllHaveReceived(t *testing.T) {
	r := &relay{acked: map[string]string{"a": "2", "b": "1"}}
	if o, ok := r.oldest(); ok {
		t.Errorf("without outputs it is %+v", o)
	}
	r.outputs = []relayedOutput{{position: "2", edges: []string{"a", "b"}}}
	if o, ok := r.oldest(); ok {
		t.Errorf("one that an edge has not received: %+v", o)
	}
	r.acked["b"] = "2"
	if o, ok := r.oldest(); !ok || o.position != "2" {
		t.Errorf("one that all have received: %+v, %v", o, ok)
	}
}
