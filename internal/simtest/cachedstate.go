package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// cachedTotal is an object that reads its storage only in the constructor, and writes from its
// memory. Its outside request takes long, does not notice the end of the incarnation that
// made it, and is fast when it is repeated. So the writes of an old incarnation come last,
// and would overwrite newer ones.
type cachedTotal struct {
	st    *dohost.State
	w     *runRecord
	total int
	done  map[string]bool
}

var cachedTotals dohost.Namespace[cachedTotal] = "cached-total"

func newCachedTotal(ctx context.Context, st *dohost.State, w *runRecord) (*cachedTotal, error) {
	w.count("constructor")
	b := &cachedTotal{st: st, w: w, done: map[string]bool{}}
	items, err := dohost.List[bool](ctx, st.Storage(), &dohost.ListOptions{Prefix: "done/"})
	for _, it := range items {
		b.done[it.Key] = true
	}
	total, _, err2 := dohost.Get[int](ctx, st.Storage(), "total")
	b.total = total
	return b, errors.Join(err, err2)
}

// requestOutside is the outside request. It takes longest for the first addition of a writer.
func (b *cachedTotal) requestOutside(id string) {
	switch {
	case b.w.count("asked "+id) > 1:
	case id == "1":
		time.Sleep(9 * time.Second)
	default:
		time.Sleep(2 * time.Second)
	}
}

// add adds once for each ID. It works for a while with the turn held, so that other events
// queue.
func (b *cachedTotal) add(ctx context.Context, a addition) (int, error) {
	err := dohost.Await(ctx, func(context.Context) error { b.requestOutside(a.ID); return nil })
	key := "done/" + a.ID
	if err != nil || b.done[key] {
		return b.total, err
	}
	time.Sleep(300 * time.Millisecond)
	b.total += a.N
	b.done[key] = true
	return b.total, errors.Join(dohost.Put(ctx, b.st.Storage(), key, true), dohost.Put(ctx, b.st.Storage(), "total", b.total))
}

func (b *cachedTotal) read(context.Context, none) (int, error) { return b.total, nil }

const cachedAdditions = 4 // of two writers, after a first one

// write adds every second power of two, from k on.
func (b *cachedStateRun) write(ctx context.Context, h *dohosttest.Host, k int) error {
	for ; k <= cachedAdditions; k += 2 {
		if _, err := retryCall(ctx, cachedTotals.Get(h, "a"), (*cachedTotal).add, addition{fmt.Sprint(k), 1 << k}); err != nil {
			return err
		}
	}
	return nil
}

// watch reads until all additions should be stored, twice each time. A total never decreases.
func (b *cachedStateRun) watch(ctx context.Context, h *dohosttest.Host) error {
	last := 0
	for range 7 {
		for range 2 {
			n, err := retryCall(ctx, cachedTotals.Get(h, "a"), (*cachedTotal).read, none{})
			if err != nil {
				return err
			}
			if n < last {
				return fmt.Errorf("the total was %d, is %d", last, n)
			}
			last = n
		}
		h.Advance(2100 * time.Millisecond) // so that some reads queue after a writer
	}
	return nil
}

// cachedStateRun runs the clients of a cachedTotal. Each has two minutes.
type cachedStateRun struct{ w *runRecord }

func (b *cachedStateRun) run(ctx context.Context, h *dohosttest.Host) error {
	// A call that is never answered fails.
	within := func(do func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			return do(ctx)
		}
	}
	first := within(func(ctx context.Context) error {
		_, err := retryCall(ctx, cachedTotals.Get(h, "a"), (*cachedTotal).add, addition{"0", 1})
		return err
	})
	if err := first(ctx); err != nil {
		return err
	}
	var clients []*dohosttest.Client
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { return b.write(ctx, h, 1) },
		func(ctx context.Context) error { return b.write(ctx, h, 2) },
		func(ctx context.Context) error { return b.watch(ctx, h) },
	} {
		clients = append(clients, h.Client(within(do)))
	}
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Wait())
	}
	h.Advance(time.Minute) // until the requests of old incarnations have ended
	return err
}

func (b *cachedStateRun) check(ctx context.Context, h *dohosttest.Host) error {
	n, err := dohost.Call(ctx, cachedTotals.Get(h, "a"), (*cachedTotal).read, none{})
	err = errors.Join(err, differ("the total", n, 1<<(cachedAdditions+1)-1))
	if runs, incarnations := b.w.countOf("constructor"), b.w.endings(cachedTotals.Get(h, "a").ID())+1; runs > incarnations {
		err = errors.Join(err, fmt.Errorf("the constructor ran %d times for %d incarnations", runs, incarnations))
	}
	return err
}

// newCachedState has several clients of an object that keeps its stored data in memory.
func newCachedState() dohosttest.Scenario {
	b := &cachedStateRun{w: new(runRecord)}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(cachedTotals, func(ctx context.Context, st *dohost.State) (*cachedTotal, error) {
			return newCachedTotal(ctx, st, b.w)
		}, nil)},
		Options: dohost.Options{Listener: b.w.listener()},
		Places:  objectPlaces,
		Reset:   b.w.reset,
		Run:     b.run,
		Check:   b.check,
		Batched: true,
	}
}
