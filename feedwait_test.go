package dohost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// TestFeedWaitsAreBounded has one waiting reader more than half of the events of an object. Other calls run, and the readers end when
// the host closes.
func TestFeedWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), &dohost.Options{MaxEvents: 6})
		var errs [4]error
		for i := range errs {
			go func() {
				errs[i] = shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
					return itemFeed.Wait(ctx, s.store, dohost.Position{})
				})
			}()
			synctest.Wait()
		}
		if !errors.Is(errs[3], dohost.ErrOverloaded) || errs[0] != nil || errs[1] != nil || errs[2] != nil {
			t.Errorf("of four readers, with a limit of three: %v", errs)
		}
		inItems(t, h, func(ctx context.Context, s *dohost.Storage) error { return dohost.Put(ctx, s, "k", 1) })
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close took %v", took)
		}
		synctest.Wait()
		for _, err := range errs[:3] {
			if !errors.Is(err, dohost.ErrClosed) {
				t.Errorf("a reader ended with %v; want ErrClosed", err)
			}
		}
	})
}
