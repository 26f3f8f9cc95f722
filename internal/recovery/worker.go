package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// worker does one step whenever its alarm is delivered, or when it is called.
type worker struct {
	st    *dohost.State
	out   *book
	steps int // durable
	first bool
}

const workers dohost.Namespace[worker] = "recovery-worker"

// class returns the class of workers that write to out.
func class(out *book) dohost.Class {
	return dohost.Bind(workers, func(ctx context.Context, st *dohost.State) (*worker, error) {
		n, _, err := dohost.Get[int](ctx, st.Storage(), "steps")
		return &worker{st: st, out: out, steps: n, first: true}, err
	}, &dohost.Handlers[worker]{OnAlarm: (*worker).onAlarm})
}

// onAlarm runs a step from the alarm, and sets the alarm for the next one.
func (w *worker) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	if w.out.stopped {
		return nil
	}
	if w.first {
		w.first = false
		if err := w.out.send(message{First: w.st.ID().Name, At: time.Now()}); err != nil {
			return err
		}
	}
	n := w.steps + 1
	if err := w.out.write(begun, w.st.ID().Name, n); err != nil {
		return err
	}
	if err := w.haveEffect(ctx, n); err != nil {
		return err
	}
	if err := dohost.Put(ctx, w.st.Storage(), "steps", n); err != nil {
		return err
	}
	err := w.st.Emit(ctx, func(err error) {
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

// haveEffect writes the outside effect of a step, as an operation if there is a bank.
func (w *worker) haveEffect(ctx context.Context, step int) error {
	if w.out.bank != nil {
		return w.pay(ctx, step)
	}
	return dohost.Await(ctx, func(context.Context) error { return w.out.write(effect, w.st.ID().Name, step) })
}

// begin starts a worker by its alarm.
func (w *worker) begin(ctx context.Context, at time.Time) error {
	return w.st.SetAlarm(ctx, at)
}

// step is a step for a caller: it returns its start time.
func (w *worker) step(ctx context.Context, _ int) (at time.Time, err error) {
	at = time.Now()
	w.steps++
	return at, dohost.Put(ctx, w.st.Storage(), "steps", w.steps)
}

// stepCount returns the number of steps.
func (w *worker) stepCount(context.Context, int) (int, error) { return w.steps, nil }

func name(i int) string { return fmt.Sprintf("w%05d", i) }
