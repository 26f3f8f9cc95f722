package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// counter keeps its number in memory too, as objects do to save reads.
type counter struct {
	st *dohost.State
	n  int // the stored value of "n"
}

type addition struct {
	ID string
	N  int
}

var counters dohost.Namespace[counter] = "counter"

func counterClass() dohost.Class {
	return dohost.Bind(counters, func(ctx context.Context, st *dohost.State) (*counter, error) {
		n, _, err := dohost.Get[int](ctx, st.Storage(), "n")
		return &counter{st, n}, err
	}, nil)
}

// add adds once for each ID, and returns the total as it was then.
func (c *counter) add(ctx context.Context, a addition) (int, error) {
	then, done, err := dohost.Get[int](ctx, c.st.Storage(), "done/"+a.ID)
	if err != nil || done {
		return then, err
	}
	if _, err := c.addAgain(ctx, a.N); err != nil {
		return 0, err
	}
	return c.n, dohost.Put(ctx, c.st.Storage(), "done/"+a.ID, c.n)
}

// addAgain adds with every call.
func (c *counter) addAgain(ctx context.Context, n int) (int, error) {
	c.n += n
	return c.n, dohost.Put(ctx, c.st.Storage(), "n", c.n)
}

// tally is the content of a counter.
type tally struct{ Memory, Stored, Done int }

func (c *counter) tally(ctx context.Context, _ none) (t tally, err error) {
	t.Memory = c.n
	t.Stored, _, err = dohost.Get[int](ctx, c.st.Storage(), "n")
	done, err2 := dohost.List[int](ctx, c.st.Storage(), &dohost.ListOptions{Prefix: "done/"})
	t.Done = len(done)
	return t, errors.Join(err, err2)
}

// newCounter has a client that repeats calls with an unknown outcome, through endings, an
// idle eviction and a new version of the program.
func newCounter() dohosttest.Scenario {
	const additions = 4
	want := 0
	run := func(ctx context.Context, h *dohosttest.Host) error {
		for i := range additions {
			a := addition{ID: fmt.Sprint(i), N: 1 << i}
			want += a.N
			n, err := retryCall(ctx, counters.Get(h, "a"), (*counter).add, a)
			if err == nil {
				err = differ(fmt.Sprintf("the answer to addition %d", i), n, want)
			}
			if err != nil {
				return err
			}
			switch i {
			case 1:
				h.Advance(5 * time.Minute) // long enough to be evicted
			case 2:
				if err := h.Restart(); err != nil {
					return fmt.Errorf("restart: %v", err)
				}
			}
		}
		return nil
	}
	return dohosttest.Scenario{
		Classes: []dohost.Class{counterClass()},
		Reset:   func() { want = 0 },
		Run:     run,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, err := dohost.Call(ctx, counters.Get(h, "a"), (*counter).tally, none{})
			return errors.Join(err, differ("the counter", got, tally{want, want, additions}))
		},
	}
}
