package simtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// room is an object that is shut while it waits for something outside. Calls that arrive
// then queue.
type room struct {
	st   *dohost.State
	w    *witness
	desk *dohosttest.FakeService
	shut bool
}

var rooms dohost.Namespace[room] = "room"

// tidy excludes all other events while it awaits.
func (r *room) tidy(ctx context.Context, _ none) (none, error) {
	return none{}, dohost.Exclusive(ctx, func(ctx context.Context) error {
		r.shut = true
		defer func() { r.shut = false }()
		before, err := r.order(ctx, none{})
		if err != nil {
			return err
		}
		if err := dohost.Put(ctx, r.st.Storage(), "tidy", false); err != nil {
			return err
		}
		err = dohost.Await(ctx, func(ctx context.Context) error { return r.desk.Call(ctx, "tidy", "") })
		if err != nil {
			return err
		}
		after, err := r.order(ctx, none{})
		if err == nil && !slices.Equal(before, after) {
			r.w.fault("while the room was shut %v became %v", before, after)
		}
		return errors.Join(err, dohost.Put(ctx, r.st.Storage(), "tidy", true))
	})
}

// come records the order of the guests.
func (r *room) come(ctx context.Context, guest int) (none, error) {
	if r.shut {
		r.w.fault("guest %d came in while the room was shut", guest)
	}
	order, err := r.order(ctx, none{})
	if err != nil || slices.Contains(order, guest) {
		return none{}, err
	}
	return none{}, dohost.Put(ctx, r.st.Storage(), "order", append(order, guest))
}

func (r *room) order(ctx context.Context, _ none) ([]int, error) {
	order, _, err := dohost.Get[[]int](ctx, r.st.Storage(), "order")
	return order, err
}

func (r *room) tidied(ctx context.Context, _ none) (bool, error) {
	tidy, _, err := dohost.Get[bool](ctx, r.st.Storage(), "tidy")
	return tidy, err
}

// exclusion records the guests that came in at the first try.
type exclusion struct {
	witness
	desk  dohosttest.FakeService
	first [guests]bool
}

func (x *exclusion) run(_ context.Context, h *dohosttest.Host) error {
	clients := []*dohosttest.Client{h.Client(func(ctx context.Context) error {
		_, err := ask(ctx, rooms.Get(h, "a"), (*room).tidy, none{})
		return err
	})}
	h.Advance(10 * time.Millisecond) // the room is shut
	for k := range guests {
		clients = append(clients, h.Client(func(ctx context.Context) error {
			x.first[k] = once(ctx, &x.witness, rooms.Get(h, "a"), (*room).come, k)
			if x.first[k] {
				return nil
			}
			_, err := ask(ctx, rooms.Get(h, "a"), (*room).come, k)
			return err
		}))
		h.Advance(time.Millisecond) // it queues before the next one
	}
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Wait())
	}
	return err
}

func (x *exclusion) check(ctx context.Context, h *dohosttest.Host) error {
	order, err := dohost.Call(ctx, rooms.Get(h, "a"), (*room).order, none{})
	tidy, err2 := dohost.Call(ctx, rooms.Get(h, "a"), (*room).tidied, none{})
	err = errors.Join(err, err2, x.wrong(), checkRefused(&x.witness), differ("tidy", tidy, true))
	if len(order) != guests {
		return errors.Join(err, fmt.Errorf("the guests %v are there, want %d", order, guests))
	}
	// They came one after the other, and the guests with uninterrupted calls kept their
	// order, through all endings.
	stood := slices.DeleteFunc(slices.Clone(order), func(k int) bool { return !x.first[k] })
	if !slices.IsSorted(stood) {
		err = errors.Join(err, fmt.Errorf("guests came in the order %v", stood))
	}
	return err
}

// newExclusion has an Exclusive section that awaits, and calls that wait for its end.
func newExclusion() dohosttest.Scenario {
	x := &exclusion{desk: dohosttest.FakeService{Latency: time.Second, Idempotent: true}}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(rooms, func(_ context.Context, st *dohost.State) (*room, error) {
			return &room{st: st, w: &x.witness, desk: &x.desk}, nil
		}, nil)},
		Services: []*dohosttest.FakeService{&x.desk},
		Options:  dohost.Options{Listener: x.listener()},
		Reset:    func() { x.reset(); x.first = [guests]bool{} },
		Run:      x.run,
		Check:    x.check,
	}
}
