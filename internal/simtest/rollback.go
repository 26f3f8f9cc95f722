package simtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// seatAllocator is an object that gives each seat away once, in a transaction. The transaction is
// rolled back only when a client repeats a claim that had been granted, so only after an
// ending.
type seatAllocator struct {
	st *dohost.State
	w  *runRecord
}

// claim is a request for a seat. Try distinguishes the claims of one client.
type claim struct {
	Seat string
	Try  int
}

var (
	seatAllocators dohost.Namespace[seatAllocator] = "seat-allocator"
	grants                                         = dohost.Feed{Name: "given", Values: true}
	seats                                          = dohost.Collection[claim]{
		Name:    "seats",
		Key:     func(c claim) string { return c.Seat },
		Indexes: []dohost.Index[claim]{{Name: "try", Of: func(c claim) dohost.Key { return dohost.KeyOf(c.Try) }}},
		Feed:    &grants,
	}
)

// allocate returns the try that has the seat.
func (d *seatAllocator) allocate(ctx context.Context, c claim) (holder int, err error) {
	s := d.st.Storage()
	if err := dohost.Put(ctx, s, "asks", c.Try); err != nil {
		return 0, err
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error { return d.allocateOnce(ctx, c) })
	if err == nil {
		err = dohost.Add(ctx, s, "count", 1)
	}
	if !errors.Is(err, dohost.ErrConflict) {
		return c.Try, err
	}
	asks, _, err := dohost.Get[int](ctx, s, "asks")
	if err == nil && asks != c.Try {
		d.w.faultf("%s: try %d asks, %d is noted after a rolled-back transaction", c.Seat, c.Try, asks)
	}
	row, _, err2 := seats.Get(ctx, s, c.Seat)
	_, err3 := s.Delete(ctx, "asks")
	return row.Value.Try, errors.Join(err, err2, err3)
}

// allocateOnce has effects that must not happen for a seat that is taken, and detects that last.
func (d *seatAllocator) allocateOnce(ctx context.Context, c claim) error {
	s := d.st.Storage()
	_, err := s.Delete(ctx, "asks")
	emitted := d.st.Emit(ctx, func(err error) {
		if err == nil {
			d.w.count(fmt.Sprintf("answered %d", c.Try))
		}
	})
	printed := d.st.Go(ctx, "print", func(ctx context.Context) error {
		return dohost.Put(ctx, s, fmt.Sprintf("receipt/%d", c.Try), true)
	})
	return errors.Join(err, emitted, printed, seats.Insert(ctx, s, c))
}

// allocatorContents is the storage of a seatAllocator: seats by name, by try, and in the order of the feed.
type allocatorContents struct {
	Seats, ByTry, Given []claim
	Count               int
	Keys                []string
}

func (d *seatAllocator) read(ctx context.Context, _ none) (b allocatorContents, err error) {
	s := d.st.Storage()
	rows, err := seats.List(ctx, s, nil)
	for _, row := range rows {
		b.Seats = append(b.Seats, row.Value)
	}
	rows, err2 := seats.List(ctx, s, &dohost.Query[claim]{Index: "try"})
	for _, row := range rows {
		b.ByTry = append(b.ByTry, row.Value)
	}
	entries, err3 := grants.Read(ctx, s, dohost.Position{}, 0)
	for _, e := range entries {
		c, _, err := seats.Value(e)
		if err != nil {
			return b, err
		}
		b.Given = append(b.Given, c)
	}
	count, _, err4 := dohost.Get[int](ctx, s, "count")
	b.Count = count
	items, err5 := dohost.List[any](ctx, s, nil)
	for _, it := range items {
		b.Keys = append(b.Keys, it.Key)
	}
	return b, errors.Join(err, err2, err3, err4, err5)
}

// rollbackRun is a client that claims two seats.
type rollbackRun struct {
	w     *runRecord
	tries int
	got   []claim
}

func (c *rollbackRun) run(ctx context.Context, h *dohosttest.Host) error {
	for _, seat := range []string{"1A", "1B"} {
		var holder int
		err := retry(ctx, func(ctx context.Context) (err error) {
			c.tries++
			holder, err = dohost.Call(ctx, seatAllocators.Get(h, "a"), (*seatAllocator).allocate, claim{seat, c.tries})
			return err
		})
		if err != nil {
			return err
		}
		c.got = append(c.got, claim{seat, holder})
	}
	return nil
}

func (c *rollbackRun) check(ctx context.Context, h *dohosttest.Host) error {
	b, err := dohost.Call(ctx, seatAllocators.Get(h, "a"), (*seatAllocator).read, none{})
	err = errors.Join(err, c.w.err(), differ("the seats", b.Seats, c.got),
		differ("the seats by try", b.ByTry, c.got), differ("the seats as they were given", b.Given, c.got),
		differ("the seats that were counted", b.Count, len(c.got)))
	may := map[string]bool{"count": true}
	for try := 1; try <= c.tries; try++ {
		granted := false
		for _, got := range c.got {
			granted = granted || got.Try == try
		}
		may[fmt.Sprintf("receipt/%d", try)] = granted
		if n := c.w.countOf(fmt.Sprintf("answered %d", try)); n > 1 || n == 1 && !granted {
			err = errors.Join(err, fmt.Errorf("try %d got %d answers that it has a seat; it has: %t", try, n, granted))
		}
	}
	for _, key := range b.Keys {
		if !may[key] {
			err = errors.Join(err, fmt.Errorf("%s is there, of a try that got nothing", key))
		}
	}
	return err
}

// newRollback has transactions that are rolled back only in the recovery from an ending.
func newRollback() dohosttest.Scenario {
	c := &rollbackRun{w: new(runRecord)}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(seatAllocators, func(_ context.Context, st *dohost.State) (*seatAllocator, error) {
			return &seatAllocator{st, c.w}, nil
		}, nil)},
		Reset: func() { c.w.reset(); c.tries, c.got = 0, nil },
		Run:   c.run,
		Check: c.check,
	}
}
