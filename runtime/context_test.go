package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// A context that is made for an incarnation stays in memory for as long as the incarnation, also while the object is
// idle.
func TestContextOfAnIncarnationIsMadeOnDemand(t *testing.T) {
	h := open(t, objectstore.NewMemFS(), Options{})
	type key struct{}
	var own context.Context
	err := do(t.Context(), h, "a", "look", func(ctx context.Context, _ *counter) error {
		own = ctx
		inc := eventOf(ctx).incarnation
		if ctx.Value(key{}) != nil || inc.ctx.Load() != nil {
			t.Error("a search for a value made the incarnation's context")
		}
		with := context.WithValue(ctx, key{}, 1)
		if with.Value(key{}) != 1 || turnOf(with) != turnOf(ctx) || inc.ctx.Load() != nil {
			t.Error("a context with a value has not the value, or not the turn")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Evict(id("a"), eviction.EndFence)
	if f, ok := errors.AsType[*Fenced](context.Cause(own)); !ok || f.Reason != ReasonEvicted {
		t.Errorf("the cause is %v", context.Cause(own))
	}
}

func TestContextDerivedFromAnEventEndsWithItsCause(t *testing.T) {
	h := open(t, objectstore.NewMemFS(), Options{})
	var derived context.Context
	err := do(t.Context(), h, "a", "derive", func(ctx context.Context, _ *counter) error {
		var cancel context.CancelFunc
		derived, cancel = context.WithCancel(ctx)
		t.Cleanup(cancel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Evict(id("a"), eviction.EndFence)
	<-derived.Done()
	if f, ok := errors.AsType[*Fenced](context.Cause(derived)); !ok || f.Reason != ReasonEvicted {
		t.Errorf("the cause is %v", context.Cause(derived))
	}
}
