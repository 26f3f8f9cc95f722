package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// queue is an object with concurrent calls: its handler awaits twice, and its memory and
// its storage agree whenever an event holds the turn.
type queue struct {
	st     *dohost.State
	w      *witness
	desk   *dohosttest.FakeService
	serial int // counts constructors of the run
	total  int // the stored value of "total"
	busy   bool
}

var queues dohost.Namespace[queue] = "queue"

// hold is a part of a handler between Awaits. It compares the total.
func (q *queue) hold(ctx context.Context, what string, fn func() error) error {
	if q.busy {
		q.w.fault("%s: another event holds the turn", what)
	}
	q.busy = true
	defer func() { q.busy = false }()
	total, _, err := dohost.Get[int](ctx, q.st.Storage(), "total")
	if err != nil {
		return err
	}
	q.w.used(q.serial)
	if total != q.total {
		q.w.fault("%s: the total is %d in memory and %d in storage", what, q.total, total)
	}
	return fn()
}

// join counts a name once. It writes two keys before it does: one with HoldTurn.
func (q *queue) join(ctx context.Context, name string) (total int, err error) {
	s := q.st.Storage()
	joined := false
	err = q.hold(ctx, name+" begins", func() (err error) {
		if joined, err = q.has(ctx, "joined/"+name); err != nil || joined {
			return err
		}
		return dohost.Put(ctx, s, "came/"+name, true)
	})
	if err != nil || joined {
		return q.total, err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		if err := q.desk.Call(ctx, name, ""); err != nil {
			return err
		}
		err := dohost.HoldTurn(ctx, func(ctx context.Context) error {
			return q.hold(ctx, name+" enters", func() error { return dohost.Put(ctx, s, "entered/"+name, true) })
		})
		if err == nil {
			q.w.see("entered " + name)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = q.hold(ctx, name+" comes back", func() error {
		if joined, err := q.has(ctx, "joined/"+name); err != nil || joined {
			return err
		}
		q.total++
		return errors.Join(dohost.Put(ctx, s, "total", q.total), dohost.Put(ctx, s, "joined/"+name, true))
	})
	return q.total, err
}

func (q *queue) has(ctx context.Context, key string) (bool, error) {
	_, ok, err := dohost.Get[bool](ctx, q.st.Storage(), key)
	return ok, err
}

func (q *queue) names(ctx context.Context, _ none) (names map[string]int, err error) {
	names = map[string]int{}
	for _, kind := range []string{"came/", "entered/", "joined/"} {
		items, err := dohost.List[bool](ctx, q.st.Storage(), &dohost.ListOptions{Prefix: kind})
		if err != nil {
			return nil, err
		}
		names[kind] = len(items)
	}
	names["total"], _, err = dohost.Get[int](ctx, q.st.Storage(), "total")
	return names, err
}

const guests = 3

// once makes a call that is not repeated: while the process lives, an event that has not
// started must not be lost.
func once[O, In, Out any](ctx context.Context, w *witness, s dohost.Stub[O], m func(*O, context.Context, In) (Out, error), in In) bool {
	_, err := dohost.Call(ctx, s, m, in)
	if e, ok := errors.AsType[*dohost.Error](err); ok && e.Outcome != dohost.OutcomeUnknown {
		w.see("refused")
	}
	return err == nil
}

// checkRefused requires that a process that lives has refused no call.
func checkRefused(w *witness) error {
	if n := w.times("refused"); n > 0 && !w.restarted() {
		return fmt.Errorf("%d calls were refused, and the process never ended", n)
	}
	return nil
}

// newQueueing has several concurrent clients, and a handler that awaits.
func newQueueing() dohosttest.Scenario {
	w, desk := new(witness), &dohosttest.FakeService{Latency: 50 * time.Millisecond, Idempotent: true}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(queues, func(ctx context.Context, st *dohost.State) (*queue, error) {
			q := &queue{st: st, w: w, desk: desk, serial: w.see("constructed")}
			total, _, err := dohost.Get[int](ctx, st.Storage(), "total")
			q.total = total
			return q, err
		}, nil)},
		Services: []*dohosttest.FakeService{desk},
		Options:  dohost.Options{Listener: w.listener()},
		Places:   turns,
		Reset:    w.reset,
		Run: func(_ context.Context, h *dohosttest.Host) error {
			var clients []*dohosttest.Client
			for k := range guests {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					name := fmt.Sprint(k)
					if once(ctx, w, queues.Get(h, "a"), (*queue).join, name) {
						return nil
					}
					_, err := ask(ctx, queues.Get(h, "a"), (*queue).join, name)
					return err
				}))
			}
			var err error
			for _, c := range clients {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, err := dohost.Call(ctx, queues.Get(h, "a"), (*queue).names, none{})
			err = errors.Join(err, w.wrong(), checkRefused(w),
				differ("the queue", got, map[string]int{"came/": guests, "entered/": guests, "joined/": guests, "total": guests}))
			if n, lives := w.times("constructed"), w.endings(queues.Get(h, "a").ID())+1; n > lives {
				err = errors.Join(err, fmt.Errorf("%d constructors in %d lives", n, lives))
			}
			return err
		},
	}
}
