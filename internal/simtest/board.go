package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// board is an object that reads its storage in the constructor only, and writes what it
// has in memory. What it asks outside takes its time, does not notice that the
// incarnation which asked has ended, and knows the answer when it is asked again. So
// what an old incarnation writes comes last, and overwrites what is newer.
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

// ask is the world outside. It takes longest for the first addition of a writer.
func (b *board) ask(id string) {
	switch {
	case b.w.see("asked "+id) > 1:
	case id == "1":
		time.Sleep(9 * time.Second)
	default:
		time.Sleep(2 * time.Second)
	}
}

// add adds once for each ID. It thinks for a while with the turn held, so that others
// stand in line.
func (b *board) add(ctx context.Context, a addition) (int, error) {
	_, err := dohost.Await(ctx, func(context.Context) (none, error) { b.ask(a.ID); return none{}, nil })
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

// write adds the powers of two from k on, every second one.
func (b *boarding) write(ctx context.Context, h *dohosttest.Host, k int) error {
	for ; k <= boardAdditions; k += 2 {
		if _, err := ask(ctx, boards.Get(h, "a"), (*board).add, addition{fmt.Sprint(k), 1 << k}); err != nil {
			return err
		}
	}
	return nil
}

// watch reads until all must be there, twice each time. A total is never taken back.
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
		h.Advance(2100 * time.Millisecond) // some reads stand in line behind a writer
	}
	return nil
}

// boarding is the clients of a board. They have two minutes.
type boarding struct{ w *witness }

func (b *boarding) run(ctx context.Context, h *dohosttest.Host) error {
	// Whoever is forgotten notices.
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
	h.Advance(time.Minute) // for what old incarnations still wait for
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

// newBoarding is several clients of an object that keeps what it has stored in memory.
func newBoarding() dohosttest.Scenario {
	b := &boarding{w: new(witness)}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(boards, func(ctx context.Context, st *dohost.State) (*board, error) {
			return newBoard(ctx, st, b.w)
		})},
		Options: dohost.Options{Listener: b.w.listener()},
		Places:  turns,
		Reset:   b.w.reset,
		Run:     b.run,
		Check:   b.check,
		Batched: true,
	}
}
