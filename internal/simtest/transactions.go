package simtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// transactionObject is an object with steps of two transactions: one is rolled back, and one stays. The
// first must leave no trace.
type transactionObject struct {
	st *dohost.State
	w  *runRecord
}

var transactionObjects dohost.Namespace[transactionObject] = "transactions"

const transactionSteps = 2

var errRolledBack = errors.New("taken back")

func (v *transactionObject) step(ctx context.Context, k int) (none, error) {
	last, _, err := dohost.Get[int](ctx, v.st.Storage(), "last")
	if err != nil || last >= k {
		return none{}, err
	}
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if err := v.st.SetAlarm(ctx, due); err != nil {
		return none{}, err
	}
	back := dohost.Transaction(ctx, func(ctx context.Context) error { return v.rolledBack(ctx, k) })
	if !errors.Is(back, errRolledBack) {
		return none{}, back
	}
	at, set, err := v.st.GetAlarm(ctx)
	if err != nil {
		return none{}, err
	}
	if !set || !at.Equal(due) {
		v.w.faultf("step %d: the alarm is %v (%t) after a transaction was taken back, want %v", k, at, set, due)
	}
	return none{}, dohost.Transaction(ctx, func(ctx context.Context) error { return v.committed(ctx, k, due) })
}

// rolledBack has effects for a transaction to roll back: writes, the alarm, outputs, and an
// inner transaction that succeeded.
func (v *transactionObject) rolledBack(ctx context.Context, k int) error {
	s := v.st.Storage()
	inner := dohost.Transaction(ctx, func(ctx context.Context) error {
		return errors.Join(dohost.Put(ctx, s, "last", -1), v.emitEffects(ctx, "never inside", k))
	})
	_, err := s.Delete(ctx, "left")
	err2 := dohost.PutMany(ctx, s, map[string]int{"right": -1, "ghost": -1})
	return errors.Join(inner, err, err2, v.emitEffects(ctx, "never", k), v.st.DeleteAlarm(ctx), v.st.SetAlarm(ctx, time.Now().Add(time.Second)), errRolledBack)
}

// committed has effects that stay, around a transaction that is rolled back and a PutMany with
// one key that is too long.
func (v *transactionObject) committed(ctx context.Context, k int, due time.Time) error {
	s := v.st.Storage()
	err := errors.Join(dohost.PutMany(ctx, s, map[string]int{"left": k, "right": k}), v.emitEffects(ctx, "always", k))
	inner := dohost.Transaction(ctx, func(ctx context.Context) error { return v.rolledBack(ctx, k) })
	if err != nil || !errors.Is(inner, errRolledBack) {
		return errors.Join(err, inner)
	}
	torn := dohost.PutMany(ctx, s, map[string]int{"left": -1, strings.Repeat("x", 3000): -1})
	if _, ok := errors.AsType[*dohost.LimitError](torn); !ok {
		return fmt.Errorf("a key of 3,000 bytes: %w", torn)
	}
	return errors.Join(dohost.Put(ctx, s, "last", k), dohost.Put(ctx, s, "due", due.UnixMilli()))
}

// emitEffects makes the two kinds of effects that an object has by itself.
func (v *transactionObject) emitEffects(ctx context.Context, what string, k int) error {
	emitted := v.st.Emit(ctx, func(err error) {
		if err == nil {
			v.w.count(fmt.Sprintf("emit %s %d", what, k))
		}
	})
	return errors.Join(emitted, v.st.Go(ctx, what, func(ctx context.Context) error {
		v.w.count(fmt.Sprintf("go %s %d", what, k))
		return dohost.Put(ctx, v.st.Storage(), "went/"+what, k)
	}))
}

func (v *transactionObject) onAlarm(ctx context.Context, a dohost.AlarmInfo) error {
	delivered, _, err := dohost.Get[[]int64](ctx, v.st.Storage(), "delivered")
	return errors.Join(err, dohost.Put(ctx, v.st.Storage(), "delivered", append(delivered, a.Scheduled.UnixMilli())))
}

// contents returns the storage of the object, as text.
func (v *transactionObject) contents(ctx context.Context, _ none) (map[string]string, error) {
	found := map[string]string{}
	for it, err := range dohost.All[any](ctx, v.st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		found[it.Key] = fmt.Sprint(it.Value)
	}
	return found, nil
}

func checkTransactions(ctx context.Context, h *dohosttest.Host, w *runRecord) error {
	id := transactionObjects.Get(h, "a").ID()
	whole := w.endings(id) == 0 // nothing has ended, so no effect may be missing
	got, err := dohost.Call(ctx, transactionObjects.Get(h, "a"), (*transactionObject).contents, none{})
	if err != nil {
		return err
	}
	last := fmt.Sprint(transactionSteps)
	want := map[string]string{"last": last, "left": last, "right": last, "due": got["due"], "delivered": "[" + got["due"] + "]"}
	var delivered, due int64
	if _, err := fmt.Sscanf(got["delivered"]+got["due"], "[%d]%d", &delivered, &due); err == nil && w.onTime(delivered, due) {
		want["delivered"] = got["delivered"]
	}
	if _, went := got["went/always"]; whole || went {
		want["went/always"] = got["went/always"] // which one came last is not promised
	}
	err = errors.Join(w.err(), differ("the rows", got, want))
	for k := 1; k <= transactionSteps; k++ {
		for _, kind := range []string{"emit", "go"} {
			if n := w.countOf(fmt.Sprintf("%s always %d", kind, k)); n > 1 || whole && n == 0 {
				err = errors.Join(err, fmt.Errorf("step %d: %s happened %d times", k, kind, n))
			}
			for _, what := range []string{"never", "never inside"} {
				if n := w.countOf(fmt.Sprintf("%s %s %d", kind, what, k)); n > 0 {
					err = errors.Join(err, fmt.Errorf("step %d: %s of a transaction that was taken back happened %d times", k, kind, n))
				}
			}
		}
	}
	return err
}

// newTransactions has transactions: nested, and rolled back with all of their effects.
func newTransactions() dohosttest.Scenario {
	w := new(runRecord)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(transactionObjects, func(_ context.Context, st *dohost.State) (*transactionObject, error) {
			return &transactionObject{st, w}, nil
		}, &dohost.Handlers[transactionObject]{OnAlarm: (*transactionObject).onAlarm})},
		Options: dohost.Options{Listener: w.listener(), IdleAfter: -1},
		Places:  append([]dohost.Place{dohost.PlaceTransaction}, objectPlaces...),
		Reset:   w.reset,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for k := 1; k <= transactionSteps; k++ {
				if _, err := retryCall(ctx, transactionObjects.Get(h, "a"), (*transactionObject).step, k); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return checkTransactions(ctx, h, w) },
	}
}
