package dohost_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// An event writes and waits until the write is durable. The disk is busy until a second event has arrived.
func TestAwaitDurableWaitsForTheDiskWithoutTheTurn(t *testing.T) {
	type put func(context.Context, *dohost.Storage, string, int) error
	awaitDurable := func(ctx context.Context, _ *dohost.Storage) error { return dohost.AwaitDurable(ctx) }
	sync := func(ctx context.Context, s *dohost.Storage) error { return s.Sync(ctx) }
	for _, c := range []struct {
		name string
		put  put
		wait func(context.Context, *dohost.Storage) error
		want []string
	}{
		{"AwaitDurable", dohost.Put[int], awaitDurable, []string{"put", "second", "synced", "durable"}},
		{"Sync", dohost.Put[int], sync, []string{"put", "synced", "durable", "second"}},
		{"AwaitDurable of PutNoWait", dohost.PutNoWait[int], awaitDurable, []string{"put", "durable", "second", "synced"}},
		{"Sync of PutNoWait", dohost.PutNoWait[int], sync, []string{"put", "synced", "durable", "second"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := objectstore.NewMemFS()
				h := openOn(t, fs, nil, costClass)
				s := costObjects.Get(h, "a")
				var seen []string
				event := func(fn func(context.Context, *costObject) error) <-chan error {
					done := make(chan error, 1)
					go func() { done <- s.Do(t.Context(), fn) }()
					synctest.Wait()
					return done
				}
				release := fs.HoldSyncs()
				first := event(func(ctx context.Context, p *costObject) error {
					seen = append(seen, "put")
					if err := c.put(ctx, p.store, "n", 1); err != nil {
						return err
					}
					err := c.wait(ctx, p.store)
					seen = append(seen, "durable")
					return err
				})
				second := event(func(context.Context, *costObject) error {
					seen = append(seen, "second")
					return nil
				})
				seen = append(seen, "synced")
				release()
				for _, done := range []<-chan error{first, second} {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if !slices.Equal(seen, c.want) {
					t.Errorf("the order was %q, want %q", seen, c.want)
				}
			})
		})
	}
}
