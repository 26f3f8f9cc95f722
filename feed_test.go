package dohost_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

var letters = dohost.Feed{Name: "letters", Values: true}

var lettered = dohost.Collection[string]{Name: "lettered", Key: func(s string) string { return s }, Feed: &letters}

func openShop(t *testing.T, dir string) *dohost.Host {
	t.Helper()
	h, err := dohost.Open(dir, nil, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
		return &shop{store: st.Storage()}, nil
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// write puts letters into the shop, and returns the end of their feed.
func write(t *testing.T, h *dohost.Host, letter ...string) (end dohost.Position) {
	t.Helper()
	err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) (err error) {
		for _, l := range letter {
			if err := lettered.Put(ctx, s.store, l); err != nil {
				return err
			}
		}
		end, err = letters.End(ctx, s.store)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// wasReset reports whether err means that a feed does not have the history of a reader.
func wasReset(err error) bool {
	e, ok := errors.AsType[*dohost.FeedError](err)
	return ok && e.Reset
}

// TestFeedReaderIsResetAtAnUnknownPosition runs the documented loop of Feed from a position after the end.
func TestFeedReaderIsResetAtAnUnknownPosition(t *testing.T) {
	h := openShop(t, t.TempDir())
	defer h.Close()
	write(t, h, "a")
	err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
		at := dohost.Position{Offset: math.MaxUint64}
		for range 1000 {
			changes, err := letters.Read(ctx, s.store, at, 0)
			if err != nil || len(changes) > 0 {
				return err
			}
			if err := letters.Wait(ctx, s.store, at); err != nil {
				return err
			}
		}
		return errors.New("a thousand rounds that found nothing, with the turn held")
	})
	if !wasReset(err) {
		t.Errorf("%v; want a FeedError with Reset", err)
	}
}

// TestFeedReaderIsResetAfterARestore restores a backup, and reads from a position that the
// store had reached after it was taken.
func TestFeedReaderIsResetAfterARestore(t *testing.T) {
	backup := t.TempDir() + "/backup"
	h := openShop(t, t.TempDir())
	common := write(t, h, "a", "b")
	if err := h.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	lost := write(t, h, "c", "d", "e")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openShop(t, backup)
	defer h.Close()
	for _, more := range [][]string{nil, {"f"}, {"g", "h", "i"}} { // shorter, and then longer than it was
		write(t, h, more...)
		err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
			if changes, err := letters.Read(ctx, s.store, lost, 0); !wasReset(err) {
				t.Errorf("with %q: read %d entries after %v, %v; want a FeedError with Reset", more, len(changes), lost, err)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := letters.Wait(short, s.store, lost); !wasReset(err) {
				t.Errorf("with %q: waited after %v, %v; want a FeedError with Reset", more, lost, err)
			}
			_, err := letters.Read(ctx, s.store, common, 0)
			return err
		})
		if err != nil {
			t.Errorf("with %q: from a position of the common history: %v", more, err)
		}
	}
}
