package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// worker does one step whenever its alarm rings, or when it is called.
type worker struct {
	st    *dohost.State
	out   *ledger
	steps int // durable
	first bool
}

const workers dohost.Namespace[worker] = "recovery-worker"

// class is that of the workers that write to out.
func class(out *ledger) dohost.Class {
	return dohost.Bind(workers, func(ctx context.Context, st *dohost.State) (*worker, error) {
		n, _, err := dohost.Get[int](ctx, st.Storage(), "steps")
		return &worker{st: st, out: out, steps: n, first: true}, err
	}, dohost.OnAlarm((*worker).ring))
}

// ring is a step of a worker that goes on by itself.
func (w *worker) ring(ctx context.Context, _ dohost.AlarmInfo) error {
	if w.out.over {
		return nil
	}
	if w.first {
		w.first = false
		if err := w.out.news(news{First: w.st.ID().Name, At: time.Now()}); err != nil {
			return err
		}
	}
	n := w.steps + 1
	if err := w.out.write(begun, w.st.ID().Name, n); err != nil {
		return err
	}
	_, err := dohost.Await(ctx, func(context.Context) (struct{}, error) {
		return struct{}{}, w.out.write(effect, w.st.ID().Name, n)
	})
	if err != nil {
		return err
	}
	if err := dohost.Put(ctx, w.st.Storage(), "steps", n); err != nil {
		return err
	}
	err = w.st.Emit(ctx, func(err error) {
		if err == nil {
			w.out.acknowledge(w.st.ID().Name, n)
		}
	})
	if err != nil {
		return err
	}
	w.steps = n
	return w.st.SetAlarm(ctx, time.Now().Add(w.out.pause))
}

// begin sets a worker going.
func (w *worker) begin(ctx context.Context, at time.Time) (struct{}, error) {
	return struct{}{}, w.st.SetAlarm(ctx, at)
}

// step is one of a worker that is called: it returns the moment at which it began.
func (w *worker) step(ctx context.Context, _ int) (at time.Time, err error) {
	at = time.Now()
	w.steps++
	return at, dohost.Put(ctx, w.st.Storage(), "steps", w.steps)
}

// touch does nothing.
func (w *worker) touch(context.Context, int) (int, error) { return w.steps, nil }

func name(i int) string { return fmt.Sprintf("w%05d", i) }
