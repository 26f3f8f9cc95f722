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
	st      *dohost.State
	w       *runRecord
	service *dohosttest.FakeService
	serial  int // counts constructors of the run
	total   int // the stored value of "total"
	busy    bool
}

var queues dohost.Namespace[queue] = "queue"

// checkTurn is a part of a handler between Awaits. It compares the total.
func (q *queue) checkTurn(ctx context.Context, what string, fn func() error) error {
	if q.busy {
		q.w.faultf("%s: another event holds the turn", what)
	}
	q.busy = true
	defer func() { q.busy = false }()
	total, _, err := dohost.Get[int](ctx, q.st.Storage(), "total")
	if err != nil {
		return err
	}
	q.w.recordUse(q.serial)
	if total != q.total {
		q.w.faultf("%s: the total is %d in memory and %d in storage", what, q.total, total)
	}
	return fn()
}

// join counts a name once. It writes two keys before it does: one with HoldTurn.
func (q *queue) join(ctx context.Context, name string) (total int, err error) {
	s := q.st.Storage()
	joined := false
	err = q.checkTurn(ctx, name+" begins", func() (err error) {
		if joined, err = q.has(ctx, "joined/"+name); err != nil || joined {
			return err
		}
		return dohost.Put(ctx, s, "came/"+name, true)
	})
	if err != nil || joined {
		return q.total, err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		if err := q.service.Call(ctx, name, ""); err != nil {
			return err
		}
		err := dohost.HoldTurn(ctx, func(ctx context.Context) error {
			return q.checkTurn(ctx, name+" enters", func() error { return dohost.Put(ctx, s, "entered/"+name, true) })
		})
		if err == nil {
			q.w.count("entered " + name)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = q.checkTurn(ctx, name+" comes back", func() error {
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

const clientCount = 3

// callOnce makes a call that is not repeated: while the process runs, an event that has not
// started must not be lost.
func callOnce[O, In, Out any](ctx context.Context, w *runRecord, s dohost.Stub[O], m func(*O, context.Context, In) (Out, error), in In) bool {
	_, err := dohost.Call(ctx, s, m, in)
	if e, ok := errors.AsType[*dohost.Error](err); ok && e.Outcome != dohost.OutcomeUnknown {
		w.count("refused")
	}
	return err == nil
}

// checkRefused requires that a process that has not ended has refused no call.
func checkRefused(w *runRecord) error {
	if n := w.countOf("refused"); n > 0 && !w.restarted() {
		return fmt.Errorf("%d calls were refused, and the process never ended", n)
	}
	return nil
}

// newQueue has several concurrent clients, and a handler that awaits.
func newQueue() dohosttest.Scenario {
	w, desk := new(runRecord), &dohosttest.FakeService{Latency: 50 * time.Millisecond, Idempotent: true}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(queues, func(ctx context.Context, st *dohost.State) (*queue, error) {
			q := &queue{st: st, w: w, service: desk, serial: w.count("constructed")}
			total, _, err := dohost.Get[int](ctx, st.Storage(), "total")
			q.total = total
			return q, err
		}, nil)},
		Services: []*dohosttest.FakeService{desk},
		Options:  dohost.Options{Listener: w.listener()},
		Places:   objectPlaces,
		Reset:    w.reset,
		Run: func(_ context.Context, h *dohosttest.Host) error {
			var clients []*dohosttest.Client
			for k := range clientCount {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					name := fmt.Sprint(k)
					if callOnce(ctx, w, queues.Get(h, "a"), (*queue).join, name) {
						return nil
					}
					_, err := retryCall(ctx, queues.Get(h, "a"), (*queue).join, name)
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
			err = errors.Join(err, w.err(), checkRefused(w),
				differ("the queue", got, map[string]int{"came/": clientCount, "entered/": clientCount, "joined/": clientCount, "total": clientCount}))
			if n, incarnations := w.countOf("constructed"), w.endings(queues.Get(h, "a").ID())+1; n > incarnations {
				err = errors.Join(err, fmt.Errorf("%d constructors in %d incarnations", n, incarnations))
			}
			return err
		},
	}
}
