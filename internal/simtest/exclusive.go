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

// exclusiveObject is an object that excludes other events while it waits for something outside. Calls that arrive
// then queue.
type exclusiveObject struct {
	st        *dohost.State
	w         *runRecord
	service   *dohosttest.FakeService
	inSection bool
}

var exclusiveObjects dohost.Namespace[exclusiveObject] = "exclusive"

// runExclusive excludes all other events while it awaits.
func (r *exclusiveObject) runExclusive(ctx context.Context, _ none) (none, error) {
	return none{}, dohost.Exclusive(ctx, func(ctx context.Context) error {
		r.inSection = true
		defer func() { r.inSection = false }()
		before, err := r.order(ctx, none{})
		if err != nil {
			return err
		}
		if err := dohost.Put(ctx, r.st.Storage(), "tidy", false); err != nil {
			return err
		}
		err = dohost.Await(ctx, func(ctx context.Context) error { return r.service.Call(ctx, "tidy", "") })
		if err != nil {
			return err
		}
		after, err := r.order(ctx, none{})
		if err == nil && !slices.Equal(before, after) {
			r.w.faultf("during the Exclusive section %v became %v", before, after)
		}
		return errors.Join(err, dohost.Put(ctx, r.st.Storage(), "tidy", true))
	})
}

// join records the order of the clients.
func (r *exclusiveObject) join(ctx context.Context, client int) (none, error) {
	if r.inSection {
		r.w.faultf("client %d joined during the Exclusive section", client)
	}
	order, err := r.order(ctx, none{})
	if err != nil || slices.Contains(order, client) {
		return none{}, err
	}
	return none{}, dohost.Put(ctx, r.st.Storage(), "order", append(order, client))
}

func (r *exclusiveObject) order(ctx context.Context, _ none) ([]int, error) {
	order, _, err := dohost.Get[[]int](ctx, r.st.Storage(), "order")
	return order, err
}

func (r *exclusiveObject) completed(ctx context.Context, _ none) (bool, error) {
	tidy, _, err := dohost.Get[bool](ctx, r.st.Storage(), "tidy")
	return tidy, err
}

// exclusiveRun records the clients that joined at the first try.
type exclusiveRun struct {
	runRecord
	service dohosttest.FakeService
	first   [clientCount]bool
}

func (x *exclusiveRun) run(_ context.Context, h *dohosttest.Host) error {
	clients := []*dohosttest.Client{h.Client(func(ctx context.Context) error {
		_, err := retryCall(ctx, exclusiveObjects.Get(h, "a"), (*exclusiveObject).runExclusive, none{})
		return err
	})}
	h.Advance(10 * time.Millisecond) // the section is open
	for k := range clientCount {
		clients = append(clients, h.Client(func(ctx context.Context) error {
			x.first[k] = callOnce(ctx, &x.runRecord, exclusiveObjects.Get(h, "a"), (*exclusiveObject).join, k)
			if x.first[k] {
				return nil
			}
			_, err := retryCall(ctx, exclusiveObjects.Get(h, "a"), (*exclusiveObject).join, k)
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

func (x *exclusiveRun) check(ctx context.Context, h *dohosttest.Host) error {
	order, err := dohost.Call(ctx, exclusiveObjects.Get(h, "a"), (*exclusiveObject).order, none{})
	tidy, err2 := dohost.Call(ctx, exclusiveObjects.Get(h, "a"), (*exclusiveObject).completed, none{})
	err = errors.Join(err, err2, x.err(), checkRefused(&x.runRecord), differ("tidy", tidy, true))
	if len(order) != clientCount {
		return errors.Join(err, fmt.Errorf("the clients %v have joined, want %d", order, clientCount))
	}
	// They joined one after the other, and the clients with uninterrupted calls kept their
	// order, through all endings.
	joined := slices.DeleteFunc(slices.Clone(order), func(k int) bool { return !x.first[k] })
	if !slices.IsSorted(joined) {
		err = errors.Join(err, fmt.Errorf("clients joined in the order %v", joined))
	}
	return err
}

// newExclusive has an Exclusive section that awaits, and calls that wait for its end.
func newExclusive() dohosttest.Scenario {
	x := &exclusiveRun{service: dohosttest.FakeService{Latency: time.Second, Idempotent: true}}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(exclusiveObjects, func(_ context.Context, st *dohost.State) (*exclusiveObject, error) {
			return &exclusiveObject{st: st, w: &x.runRecord, service: &x.service}, nil
		}, nil)},
		Services: []*dohosttest.FakeService{&x.service},
		Options:  dohost.Options{Listener: x.listener()},
		Reset:    func() { x.reset(); x.first = [clientCount]bool{} },
		Run:      x.run,
		Check:    x.check,
	}
}
