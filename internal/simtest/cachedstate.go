package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// board is an object that reads its storage only in the constructor, and writes from its
// memory. Its outside request takes long, does not notice the end of the incarnation that
// made it, and is fast when it is repeated. So the writes of an old incarnation come last,
// and would overwrite newer ones.
type board struct {
	st    *dohost.State
	w     *witness
	total int
	done  map[string]bool
}

var boards dohost.Namespace[board] = "board"

func newBoard(ctx context.Context, st *dohost.State, w *witness) (*board, error) {
	w.see("constructor")
	b := &board{st: st, w: w, done: map[string]bool{}}
	items, err := dohost.List[bool](ctx, st.Storage(), &dohost.ListOptions{Prefix: "done/"})
	for _, it := range items {
		b.done[it.Key] = true
	}
	total, _, err2 := dohost.Get[int](ctx, st.Storage(), "total")
	b.total = total
	return b, errors.Join(err, err2)
}

// ask is the outside request. It takes longest for the first addition of a writer.
func (b *board) ask(id string) {
	switch {
	case b.w.see("asked "+id) > 1:
	case id == "1":
		time.Sleep(9 * time.Second)
	default:
		time.Sleep(2 * time.Second)
	}
}

// add adds once for each ID. It works for a while with the turn held, so that other events
// queue.
func (b *board) add(ctx context.Context, a addition) (int, error) {
	err := dohost.Await(ctx, func(context.Context) error { b.ask(a.ID); return nil })
	key := "done/" + a.ID
	if err != nil || b.done[key] {
		return b.total, err
	}
	time.Sleep(300 * time.Millisecond)
	b.total += a.N
	b.done[key] = true
	return b.total, errors.Join(dohost.Put(ctx, b.st.Storage(), key, true), dohost.Put(ctx, b.st.Storage(), "total", b.total))
}

func (b *board) read(context.Context, none) (int, error) { return b.total, nil }

const boardAdditions = 4 // of two writers, after a first one

// write adds every second power of two, from k on.
func (b *boarding) write(ctx context.Context, h *dohosttest.Host, k int) error {
	for ; k <= boardAdditions; k += 2 {
		if _, err := ask(ctx, boards.Get(h, "a"), (*board).add, addition{fmt.Sprint(k), 1 << k}); err != nil {
			return err
		}
	}
	return nil
}

// watch reads until all additions should be stored, twice each time. A total never decreases.
func (b *boarding) watch(ctx context.Context, h *dohosttest.Host) error {
	last := 0
	for range 7 {
		for range 2 {
			n, err := ask(ctx, boards.Get(h, "a"), (*board).read, none{})
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

// boarding runs the clients of a board. Each has two minutes.
type boarding struct{ w *witness }

func (b *boarding) run(ctx context.Context, h *dohosttest.Host) error {
	// A call that is never answered fails.
	within := func(do func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			return do(ctx)
		}
	}
	first := within(func(ctx context.Context) error {
		_, err := ask(ctx, boards.Get(h, "a"), (*board).add, addition{"0", 1})
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

func (b *boarding) check(ctx context.Context, h *dohosttest.Host) error {
	n, err := dohost.Call(ctx, boards.Get(h, "a"), (*board).read, none{})
	err = errors.Join(err, differ("the total", n, 1<<(boardAdditions+1)-1))
	if runs, lives := b.w.times("constructor"), b.w.endings(boards.Get(h, "a").ID())+1; runs > lives {
		err = errors.Join(err, fmt.Errorf("the constructor ran %d times for %d incarnations", runs, lives))
	}
	return err
}

// newBoarding has several clients of an object that keeps its stored data in memory.
func newBoarding() dohosttest.Scenario {
	b := &boarding{w: new(witness)}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(boards, func(ctx context.Context, st *dohost.State) (*board, error) {
			return newBoard(ctx, st, b.w)
		}, nil)},
		Options: dohost.Options{Listener: b.w.listener()},
		Places:  turns,
		Reset:   b.w.reset,
		Run:     b.run,
		Check:   b.check,
		Batched: true,
	}
}
