package cli_test

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
)

// Counter counts.
type Counter struct{ st *dohost.State }

// Counters is the namespace of Counter objects.
const Counters dohost.Namespace[Counter] = "counter"

// Add adds n, and returns the sum.
func (c *Counter) Add(ctx context.Context, n int) (int, error) {
	sum, _, err := dohost.Get[int](ctx, c.st.Storage(), "sum")
	if err != nil {
		return 0, err
	}
	return sum + n, dohost.Put(ctx, c.st.Storage(), "sum", sum+n)
}

// A program that serves a class over HTTP, and has the commands of dohost for its objects.
func Example() {
	main := func() {
		cli.Main(dohost.Bind(Counters, func(_ context.Context, st *dohost.State) (*Counter, error) { return &Counter{st}, nil }, nil,
			dohost.Expose("Add", (*Counter).Add)))
	}
	_ = main
}
