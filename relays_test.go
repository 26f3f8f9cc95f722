package dohost

import (
	"context"
	"errors"
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
