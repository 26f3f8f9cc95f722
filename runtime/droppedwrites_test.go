package runtime

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/objectstore"
)

func TestIncarnationEndsWhenTheStoreDropsItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []Ended
		h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{Fenced: func(e Ended) { ended = append(ended, e) }}})
		for _, name := range []string{"a", "b"} {
			if _, err := add(t.Context(), h, name, 1); err != nil {
				t.Fatal(err)
			}
		}
		o := h.lookup(id("a"))
		o.mu.Lock()
		epoch := o.incarnation.epoch()
		o.mu.Unlock()
		older := epoch
		older.Incarnation--
		cause := errors.New("bad sector")
		h.writesDropped(id("a"), older, cause)
		if len(ended) > 0 {
			t.Errorf("the incarnation after the one concerned has ended: %v", ended)
		}
		h.writesDropped(id("a"), epoch, cause)
		if len(ended) != 1 || ended[0].ID != id("a") || ended[0].Epoch != epoch || !errors.Is(ended[0].Cause.Err, cause) {
			t.Errorf("ended: %v", ended)
		}
		if n, err := add(t.Context(), h, "a", 1); n != 2 || err != nil {
			t.Errorf("add: %d, %v", n, err)
		}
		if h.Err() != nil {
			t.Error(h.Err())
		}
	})
}
