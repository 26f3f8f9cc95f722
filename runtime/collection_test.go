package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/objectstore"
)

var orders = &objectstore.Collection{Name: "orders", Feed: objectstore.Feed{Name: "f"}}

func (c *counter) order(ctx context.Context, key string) error {
	_, err := c.s.PutRow(ctx, orders, objectstore.RowWrite{
		Key: []byte(key), Value: []byte("v"), Entries: []objectstore.IndexEntry{{Index: "all", Key: []byte("x")}},
		Expect: objectstore.AnyVersion,
	})
	return err
}

// follower reads a feed to its end, waits, and reads again, until ctx ends.
type follower struct {
	seen string
	err  chan error
}

func follow(ctx context.Context, h *Host) *follower {
	f := &follower{err: make(chan error, 1)}
	go func() {
		f.err <- do(ctx, h, "a", "follow", func(turn context.Context, c *counter) error {
			at := objectstore.Position{}
			for {
				changes, err := c.s.ReadFeed(turn, "f", at, 1, 0)
				for _, ch := range changes {
					f.seen += string(ch.Key)
					at.Offset = ch.Offset
				}
				if err == nil && len(changes) == 0 {
					_, err = c.s.WaitFeed(turn, "f", at)
				}
				if err != nil {
					return err
				}
			}
		})
	}()
	return f
}

func TestFeedReaderWaitsForDurableEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		write := func(key string) {
			go do(t.Context(), h, "a", "order", func(ctx context.Context, c *counter) error { return c.order(ctx, key) })
			synctest.Wait()
		}
		early := follow(t.Context(), h)
		synctest.Wait()
		release := fs.HoldSyncs()
		write("x")
		write("y")
		late := follow(t.Context(), h) // while there are entries that are not durable
		synctest.Wait()
		if early.seen != "" || late.seen != "" {
			t.Errorf("read %q and %q before anything was durable", early.seen, late.seen)
		}
		release()
		synctest.Wait()
		if early.seen != "xy" || late.seen != "xy" {
			t.Errorf("read %q and %q once durable; want xy", early.seen, late.seen)
		}
		write("z")
		if early.seen != "xyz" || late.seen != "xyz" {
			t.Errorf("read %q and %q; want xyz", early.seen, late.seen)
		}
		if !h.Evict(id("a"), eviction.EndFence) {
			t.Error("nothing to evict")
		}
		for _, f := range []*follower{early, late} {
			if err := <-f.err; !errors.Is(err, ErrFenced) {
				t.Errorf("a reader of an ended incarnation got %v", err)
			}
		}
	})
}

func TestFeedReaderOutlastsARolledBackTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		f := follow(t.Context(), h)
		synctest.Wait()
		errNo := errors.New("no")
		order := func(key string, result error) {
			err := do(t.Context(), h, "a", "order", func(ctx context.Context, c *counter) error {
				return Transaction(ctx, func(ctx context.Context) error { return errors.Join(c.order(ctx, key), result) })
			})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		order("x", errNo)
		order("y", nil)
		if f.seen != "y" {
			t.Errorf("read %q; want y", f.seen)
		}
		h.Evict(id("a"), eviction.EndFence)
		<-f.err
	})
}

func TestFeedWaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		err := do(t.Context(), h, "a", "wait", func(ctx context.Context, c *counter) error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := c.s.WaitFeed(short, "f", objectstore.Position{}); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("waiting for a second: %w", err)
			}
			if err := c.order(ctx, "x"); err != nil {
				return err
			}
			// Its own entry exists, so WaitFeed returns immediately.
			if _, err := c.s.WaitFeed(ctx, "f", objectstore.Position{}); err != nil {
				return err
			}
			if _, err := c.s.WaitFeed(ctx, "f", objectstore.Position{Log: "another"}); !errors.Is(err, errkind.ErrNotFound) {
				return fmt.Errorf("waiting on another log: %w", err)
			}
			return Transaction(ctx, func(ctx context.Context) error {
				if _, err := c.s.WaitFeed(ctx, "f", objectstore.Position{Offset: 1}); !errors.Is(err, ErrInTransaction) {
					return fmt.Errorf("waiting in a transaction: %w", err)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestFeedWaitFailsWithAnEndedContext waits with a context that has ended, for an entry that
// exists: a loop of reads and waits must end in any case.
func TestFeedWaitFailsWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		err := do(t.Context(), h, "a", "wait", func(ctx context.Context, c *counter) error {
			if err := c.order(ctx, "x"); err != nil {
				return err
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := c.s.WaitFeed(ended, "f", objectstore.Position{}); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("waiting with a context that has ended: %w", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestCollectionRowsEndWithTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var stale *counter
		err := do(t.Context(), h, "a", "rows", func(ctx context.Context, c *counter) error {
			stale = c
			for _, key := range []string{"x", "y", "z"} {
				if err := c.order(ctx, key); err != nil {
					return err
				}
			}
			q := objectstore.RowQuery{Index: "all"}
			if n, err := c.s.CountRows(ctx, orders, q); err != nil || n != 3 {
				return fmt.Errorf("counted %d rows: %w", n, err)
			}
			seen := ""
			for row, err := range c.s.Rows(ctx, orders, q) {
				if err != nil {
					if seen != "xy" || !errors.Is(err, ErrTurnOver) {
						return fmt.Errorf("after %q: %w", seen, err)
					}
					return nil
				}
				if seen += string(row.Key); seen == "xy" {
					if err := Sleep(ctx, time.Second); err != nil {
						return err
					}
				}
			}
			return fmt.Errorf("saw %q and no error", seen)
		})
		if err != nil {
			t.Error(err)
		}
		_, _, getErr := stale.s.GetRow(t.Context(), orders, []byte("x"))
		_, putErr := stale.s.PutRow(t.Context(), orders, objectstore.RowWrite{Key: []byte("x")})
		_, deleteErr := stale.s.DeleteRow(t.Context(), orders, []byte("x"), 1)
		_, countErr := stale.s.CountRows(t.Context(), orders, objectstore.RowQuery{})
		_, readErr := stale.s.ReadFeed(t.Context(), "f", objectstore.Position{}, 1, 0)
		_, _, endsErr := stale.s.FeedEnds(t.Context(), "f")
		_, waitErr := stale.s.WaitFeed(t.Context(), "f", objectstore.Position{})
		var rowsErr error
		for _, rowsErr = range stale.s.Rows(t.Context(), orders, objectstore.RowQuery{}) {
		}
		for i, err := range []error{getErr, putErr, deleteErr, countErr, readErr, endsErr, waitErr, rowsErr} {
			if !errors.Is(err, ErrNoTurn) {
				t.Errorf("operation %d without a turn: %v", i, err)
			}
		}
	})
}
