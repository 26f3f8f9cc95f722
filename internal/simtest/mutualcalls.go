package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// account is an object that pays others out of an outbox. A sum in the outbox has left the
// balance and may have arrived; the alarm repeats the delivery until it has. The payee
// calls back, into an account that waits for it.
type account struct{ st *dohost.State }

type transfer struct {
	ID, To string
	Sum    int
}

var accounts dohost.Namespace[account] = "account"

const redeliver = 3 * time.Second

func (a *account) pay(ctx context.Context, t transfer) (none, error) {
	s := a.st.Storage()
	_, known, err := dohost.Get[bool](ctx, s, "paid/"+t.ID)
	if err != nil || known {
		return none{}, err
	}
	err = errors.Join(
		dohost.Add(ctx, s, "balance", -t.Sum),
		dohost.Put(ctx, s, "paid/"+t.ID, true),
		dohost.Put(ctx, s, "out/"+t.ID, t),
		a.st.SetAlarm(ctx, time.Now().Add(redeliver)))
	if err != nil {
		return none{}, err
	}
	_ = a.deliver(ctx, t) // the alarm repeats it
	return none{}, nil
}

// deliver is repeated until it succeeds; the payee identifies the transfer by its ID.
func (a *account) deliver(ctx context.Context, t transfer) error {
	if _, err := dohost.Call(ctx, accounts.Get(a.st, t.To), (*account).receive, transfer{t.ID, a.st.ID().Name, t.Sum}); err != nil {
		return err
	}
	confirmed, _, err := dohost.Get[bool](ctx, a.st.Storage(), "confirmed/"+t.ID)
	if err == nil && !confirmed {
		err = fmt.Errorf("%s was received, and not confirmed before", t.ID)
	}
	return err
}

func (a *account) alarm(ctx context.Context, _ dohost.AlarmInfo) error {
	out, err := dohost.List[transfer](ctx, a.st.Storage(), &dohost.ListOptions{Prefix: "out/"})
	if err != nil || len(out) == 0 {
		return err
	}
	// Set before the first call, for the deliveries that this run may not reach.
	if err := a.st.SetAlarm(ctx, time.Now().Add(redeliver)); err != nil {
		return err
	}
	for _, it := range out {
		_ = a.deliver(ctx, it.Value)
	}
	return nil
}

// receive books a transfer, with the payer in To, and confirms it while the payer waits.
func (a *account) receive(ctx context.Context, t transfer) (none, error) {
	s := a.st.Storage()
	_, known, err := dohost.Get[bool](ctx, s, "got/"+t.ID)
	if err == nil && !known {
		err = errors.Join(dohost.Add(ctx, s, "balance", t.Sum), dohost.Put(ctx, s, "got/"+t.ID, true))
	}
	if err != nil {
		return none{}, err
	}
	return dohost.Call(ctx, accounts.Get(a.st, t.To), (*account).confirm, t.ID)
}

func (a *account) confirm(ctx context.Context, id string) (none, error) {
	_, err := a.st.Storage().Delete(ctx, "out/"+id)
	return none{}, errors.Join(err, dohost.Put(ctx, a.st.Storage(), "confirmed/"+id, true))
}

// keys returns the balance of an account, and the number of its other keys.
func (a *account) keys(ctx context.Context, _ none) (found map[string]int, err error) {
	found = map[string]int{}
	for _, kind := range []string{"paid/", "out/", "got/", "confirmed/"} {
		items, err := dohost.List[any](ctx, a.st.Storage(), &dohost.ListOptions{Prefix: kind})
		if err != nil {
			return nil, err
		}
		found[kind] = len(items)
	}
	found["balance"], _, err = dohost.Get[int](ctx, a.st.Storage(), "balance")
	return found, err
}

// newMutualCalls has two accounts that pay each other at the same time.
func newMutualCalls() dohosttest.Scenario {
	pay := func(h *dohosttest.Host, from string, ts ...transfer) *dohosttest.Client {
		return h.Client(func(ctx context.Context) error {
			for _, t := range ts {
				if _, err := retryCall(ctx, accounts.Get(h, from), (*account).pay, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) {
			return &account{st}, nil
		}, &dohost.Handlers[account]{OnAlarm: (*account).alarm})},
		Places: objectPlaces,
		Run: func(_ context.Context, h *dohosttest.Host) error {
			a := pay(h, "a", transfer{"1", "b", 1})
			b := pay(h, "b", transfer{"2", "a", 100})
			return errors.Join(a.Wait(), b.Wait())
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			a, err := dohost.Call(ctx, accounts.Get(h, "a"), (*account).keys, none{})
			b, err2 := dohost.Call(ctx, accounts.Get(h, "b"), (*account).keys, none{})
			return errors.Join(err, err2,
				differ("account a", a, map[string]int{"balance": 99, "paid/": 1, "out/": 0, "got/": 1, "confirmed/": 1}),
				differ("account b", b, map[string]int{"balance": -99, "paid/": 1, "out/": 0, "got/": 1, "confirmed/": 1}))
		},
	}
}
