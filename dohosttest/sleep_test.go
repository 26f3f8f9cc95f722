package dohosttest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// outside is a system outside of the host, which clients and objects use: it has the order of its requests.
type outside struct {
	mu       sync.Mutex
	requests string
}

func (o *outside) request(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests += name
}

func (o *outside) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.requests = "" }()
	return o.requests
}

type sleeper struct{ out *outside }

const sleepers dohost.Namespace[sleeper] = "sleeper"

// Nap sleeps in the function of an Await, and makes a request then.
func (s *sleeper) Nap(ctx context.Context, d time.Duration) error {
	return dohost.Await(ctx, func(ctx context.Context) error {
		if err := dohost.Sleep(ctx, d); err != nil {
			return err
		}
		s.out.request("o")
		return nil
	})
}

// TestSleepsThatEndTogetherHaveAnOrder has three clients and an object that all make a request after sleeps that end at the same moment: the
// order of the requests is that of the clients, and the object is last, in each of many rounds.
func TestSleepsThatEndTogetherHaveAnOrder(t *testing.T) {
	const rounds = 200
	var out outside
	class := dohost.Bind(sleepers, func(context.Context, *dohost.State) (*sleeper, error) { return &sleeper{&out}, nil }, nil)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		orders := map[string]int{}
		for range rounds {
			clients := []*dohosttest.Client{h.Client(func(ctx context.Context) error {
				return dohost.CallNoResult(ctx, sleepers.Get(h, "a"), (*sleeper).Nap, 60*time.Millisecond)
			})}
			for name := 1; name <= 3; name++ {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					// The last client sets its timer first.
					for range name {
						if err := dohost.Sleep(ctx, 60*time.Millisecond/time.Duration(name)); err != nil {
							return err
						}
					}
					out.request(fmt.Sprint(name))
					return nil
				}))
			}
			for _, c := range clients {
				if err := c.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			orders[out.take()]++
		}
		if orders["123o"] != rounds {
			t.Errorf("the orders of %d rounds are %v, want 123o", rounds, orders)
		}
	})
}

// TestSleepUntilADeadlineFails has a Sleep that ends at the deadline of its context.
func TestSleepUntilADeadlineFails(t *testing.T) {
	const rounds = 200
	dohosttest.Run(t, &dohosttest.Options{}, func(t *testing.T, h *dohosttest.Host) {
		err := h.Client(func(ctx context.Context) error {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				err := dohost.Sleep(ctx, time.Second)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("Sleep %d returned %v", i, err)
				}
			}
			return nil
		}).Wait()
		if err != nil {
			t.Error(err)
		}
	})
}
