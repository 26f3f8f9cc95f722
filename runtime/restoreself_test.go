package runtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestObjectRestoresItself calls RestoreTo.
func TestObjectRestoresItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		restore := func(to objectstore.RestorePoint) error {
			return do(t.Context(), h, "a", "restore", func(ctx context.Context, c *counter) error {
				if _, err := c.add(ctx, 100); err != nil {
					return err
				}
				err := c.s.RestoreTo(ctx, to)
				if errors.Is(err, ErrFenced) {
					if _, late := c.add(ctx, 1000); !errors.Is(late, ErrFenced) {
						t.Errorf("a write after RestoreTo: %v", late)
					}
					return err
				}
				_, addErr := c.add(ctx, 100) // it has the turn
				return errors.Join(err, addErr)
			})
		}
		if err := restore(objectstore.RestorePoint{Record: 999}); !errors.Is(err, objectstore.ErrNotArchived) {
			t.Errorf("a moment in the future: %v", err)
		}
		wantTotal(t, h, "a", 211)
		wantRestored(t, restore(earlier))
		wantTotal(t, h, "a", 1)
		err := do(t.Context(), h, "b", "restore", func(ctx context.Context, _ *counter) error {
			other := h.lookup(id("a"))
			return (*State)(other.incarnation).RestoreTo(ctx, earlier)
		})
		if !errors.Is(err, ErrNoTurn) {
			t.Errorf("with the context of another object: %v", err)
		}
		err = do(t.Context(), h, "a", "transaction", func(ctx context.Context, c *counter) error {
			return Transaction(ctx, func(ctx context.Context) error {
				_, err := c.s.Bookmark(ctx)
				if !errors.Is(err, ErrInTransaction) {
					t.Errorf("Bookmark in a transaction: %v", err)
				}
				return c.s.RestoreTo(ctx, earlier)
			})
		})
		if !errors.Is(err, ErrInTransaction) {
			t.Errorf("RestoreTo in a transaction: %v", err)
		}
		wantTotal(t, h, "a", 1)
	})
}

// TestRestoreOfAnEvictedIncarnationDoesNothing evicts an object that waits in RestoreTo for the archive.
func TestRestoreOfAnEvictedIncarnationDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := pausedShipping(t)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		restored := make(chan error, 1)
		go func() {
			restored <- do(t.Context(), h, "a", "restore", func(ctx context.Context, c *counter) error { return c.s.RestoreTo(ctx, earlier) })
		}()
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		a.down.Store(false)
		if err := <-restored; !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		wantTotal(t, h, "a", 11)
		inc := h.lookup(id("a")).incarnation
		h.Evict(id("a"), eviction.EndFence)
		wantTotal(t, h, "a", 11)
		if _, err := h.restoreObject(t.Context(), id("a"), earlier, inc); !errors.Is(err, ErrFenced) {
			t.Errorf("for an incarnation that has ended: %v", err)
		}
		wantTotal(t, h, "a", 11)
	})
}
