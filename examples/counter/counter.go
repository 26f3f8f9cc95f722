// Package counter is the smallest object: a number that survives restarts.
package counter

import (
	"context"

	"github.com/dohost/dohost"
)

// Counters is the namespace of Counter objects.
const Counters dohost.Namespace[Counter] = "counter"

// Counter is a number that survives restarts.
type Counter struct{ store *dohost.Storage }

// New is the constructor.
func New(_ context.Context, st *dohost.State) (*Counter, error) {
	return &Counter{store: st.Storage()}, nil
}

// Add adds delta and returns the new total.
func (c *Counter) Add(ctx context.Context, delta int) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.store, "n")
	if err != nil {
		return 0, err
	}
	n += delta
	return n, dohost.Put(ctx, c.store, "n", n)
}

// Class lists the methods that callers outside the process may name.
func Class() dohost.Class {
	return dohost.Bind(Counters, New, nil, dohost.Expose("add", (*Counter).Add))
}
