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

// vault is an object with steps of two transactions: one is rolled back, and one stays. The
// first must leave no trace.
type vault struct {
	st *dohost.State
	w  *witness
}

var vaults dohost.Namespace[vault] = "vault"

const vaultSteps = 2

var errTakenBack = errors.New("taken back")

func (v *vault) step(ctx context.Context, k int) (none, error) {
	last, _, err := dohost.Get[int](ctx, v.st.Storage(), "last")
	if err != nil || last >= k {
		return none{}, err
	}
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if err := v.st.SetAlarm(ctx, due); err != nil {
		return none{}, err
	}
	back := dohost.Transaction(ctx, func(ctx context.Context) error { return v.never(ctx, k) })
	if !errors.Is(back, errTakenBack) {
		return none{}, back
	}
	at, set, err := v.st.GetAlarm(ctx)
	if err != nil {
		return none{}, err
	}
	if !set || !at.Equal(due) {
		v.w.fault("step %d: the alarm is %v (%t) after a transaction was taken back, want %v", k, at, set, due)
	}
	return none{}, dohost.Transaction(ctx, func(ctx context.Context) error { return v.always(ctx, k, due) })
}

// never has effects for a transaction to roll back: writes, the alarm, outputs, and an
// inner transaction that succeeded.
func (v *vault) never(ctx context.Context, k int) error {
	s := v.st.Storage()
	inner := dohost.Transaction(ctx, func(ctx context.Context) error {
		return errors.Join(dohost.Put(ctx, s, "last", -1), v.tell(ctx, "never inside", k))
	})
	_, err := s.Delete(ctx, "left")
	err2 := dohost.PutMany(ctx, s, map[string]int{"right": -1, "ghost": -1})
	return errors.Join(inner, err, err2, v.tell(ctx, "never", k), v.st.DeleteAlarm(ctx), v.st.SetAlarm(ctx, time.Now().Add(time.Second)), errTakenBack)
}

// always has effects that stay, around a transaction that is rolled back and a PutMany with
// one key that is too long.
func (v *vault) always(ctx context.Context, k int, due time.Time) error {
	s := v.st.Storage()
	err := errors.Join(dohost.PutMany(ctx, s, map[string]int{"left": k, "right": k}), v.tell(ctx, "always", k))
	inner := dohost.Transaction(ctx, func(ctx context.Context) error { return v.never(ctx, k) })
	if err != nil || !errors.Is(inner, errTakenBack) {
		return errors.Join(err, inner)
	}
	torn := dohost.PutMany(ctx, s, map[string]int{"left": -1, strings.Repeat("x", 3000): -1})
	if _, ok := errors.AsType[*dohost.LimitError](torn); !ok {
		return fmt.Errorf("a key of 3,000 bytes: %w", torn)
	}
	return errors.Join(dohost.Put(ctx, s, "last", k), dohost.Put(ctx, s, "due", due.UnixMilli()))
}

// tell makes the two kinds of effects that an object has by itself.
func (v *vault) tell(ctx context.Context, what string, k int) error {
	emitted := v.st.Emit(ctx, func(err error) {
		if err == nil {
			v.w.see(fmt.Sprintf("emit %s %d", what, k))
		}
	})
	return errors.Join(emitted, v.st.Go(ctx, what, func(ctx context.Context) error {
		v.w.see(fmt.Sprintf("go %s %d", what, k))
		return dohost.Put(ctx, v.st.Storage(), "went/"+what, k)
	}))
}

func (v *vault) ring(ctx context.Context, a dohost.AlarmInfo) error {
	rang, _, err := dohost.Get[[]int64](ctx, v.st.Storage(), "rang")
	return errors.Join(err, dohost.Put(ctx, v.st.Storage(), "rang", append(rang, a.Scheduled.UnixMilli())))
}

// holds returns the storage of a vault, as text.
func (v *vault) holds(ctx context.Context, _ none) (map[string]string, error) {
	found := map[string]string{}
	for it, err := range dohost.All[any](ctx, v.st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		found[it.Key] = fmt.Sprint(it.Value)
	}
	return found, nil
}

func checkVault(ctx context.Context, h *dohosttest.Host, w *witness) error {
	id := vaults.Get(h, "a").ID()
	whole := w.endings(id) == 0 // nothing has ended, so no effect may be missing
	got, err := dohost.Call(ctx, vaults.Get(h, "a"), (*vault).holds, none{})
	if err != nil {
		return err
	}
	last := fmt.Sprint(vaultSteps)
	want := map[string]string{"last": last, "left": last, "right": last, "due": got["due"], "rang": "[" + got["due"] + "]"}
	var rang, due int64
	if _, err := fmt.Sscanf(got["rang"]+got["due"], "[%d]%d", &rang, &due); err == nil && w.onTime(rang, due) {
		want["rang"] = got["rang"]
	}
	if _, went := got["went/always"]; whole || went {
		want["went/always"] = got["went/always"] // which one came last is not promised
	}
	err = errors.Join(w.wrong(), differ("the vault", got, want))
	for k := 1; k <= vaultSteps; k++ {
		for _, kind := range []string{"emit", "go"} {
			if n := w.times(fmt.Sprintf("%s always %d", kind, k)); n > 1 || whole && n == 0 {
				err = errors.Join(err, fmt.Errorf("step %d: %s happened %d times", k, kind, n))
			}
			for _, what := range []string{"never", "never inside"} {
				if n := w.times(fmt.Sprintf("%s %s %d", kind, what, k)); n > 0 {
					err = errors.Join(err, fmt.Errorf("step %d: %s of a transaction that was taken back happened %d times", k, kind, n))
				}
			}
		}
	}
	return err
}

// newVaulting has transactions: nested, and rolled back with all of their effects.
func newVaulting() dohosttest.Scenario {
	w := new(witness)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(vaults, func(_ context.Context, st *dohost.State) (*vault, error) {
			return &vault{st, w}, nil
		}, &dohost.Handlers[vault]{OnAlarm: (*vault).ring})},
		Options: dohost.Options{Listener: w.listener(), IdleAfter: -1},
		Places:  append([]string{"transaction"}, turns...),
		Reset:   w.reset,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for k := 1; k <= vaultSteps; k++ {
				if _, err := ask(ctx, vaults.Get(h, "a"), (*vault).step, k); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return checkVault(ctx, h, w) },
	}
}
