package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// cashier is an agent that makes equal charges in durable work.
type cashier struct {
	*agent.Agent[struct{}]
	s *shop
}

const cashiers dohost.Namespace[cashier] = "cashier"

// The work of a cashier.
const (
	threeCharges agent.FiberKind[int]   = "three" // two charges, a checkpoint and a third one
	everyTwo     agent.Callback[string] = "every" // a charge in each of three runs
	runsThree    agent.Callback[string] = "runs"  // the three charges by RunFiber
	queued       agent.Callback[int]    = "item"  // a charge, and an error of the first attempt
)

func (s *shop) cashierClass() dohost.Class {
	return agent.Bind(cashiers,
		func(_ context.Context, a *agent.Agent[struct{}]) (*cashier, error) { return &cashier{a, s}, nil },
		&agent.Handlers[cashier, struct{}]{
			Options:    agent.Options{MaxInterruptions: -1},
			Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)},
			OnInterrupted: func(c *cashier, ctx context.Context, i *agent.InterruptedRun) error {
				done := 0
				if _, err := i.Checkpoint(&done); err != nil {
					return err
				}
				_, err := i.Resume(ctx, func(ctx context.Context) error { return c.charges(ctx, done) })
				return err
			},
		},
		agent.OnFiber(threeCharges, func(c *cashier, ctx context.Context, f *agent.Fiber[int]) error {
			return c.charges(ctx, f.Checkpoint())
		}, &agent.KindOptions{KeepCompleted: -1, KeepFailed: -1}),
		agent.OnSchedule(everyTwo, (*cashier).interval), agent.OnSchedule(queued, (*cashier).item),
		agent.OnRows(&bills, "all", (*cashier).bill, nil),
		agent.OnSchedule(runsThree, func(c *cashier, ctx context.Context, _ string) error {
			return agent.RunFiber(ctx, c, "three", func(ctx context.Context) error { return c.charges(ctx, 0) })
		}),
	)
}

// bill is a row that is work.
type bill struct {
	ID     string
	Failed bool   // a call has failed
	Next   string // the rows that follow, one after the other
}

var bills = dohost.Collection[bill]{
	Name:    "bills",
	Key:     func(b bill) string { return b.ID },
	Indexes: []dohost.Index[bill]{{Name: "all", Of: func(bill) dohost.Key { return dohost.KeyOf(true) }}},
}

// bill makes a charge, deletes the row, and inserts the next one. Its first call for a row fails after the charge.
func (c *cashier) bill(ctx context.Context, row dohost.Row[bill]) error {
	if err := c.pay(ctx); err != nil {
		return err
	}
	b := row.Value
	if !b.Failed {
		return errors.Join(errors.New("the first call"), bills.Put(ctx, c.Storage(), bill{b.ID, true, b.Next}))
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		_, err := bills.Delete(ctx, c.Storage(), b.ID)
		if b.Next != "" {
			err = errors.Join(err, bills.Insert(ctx, c.Storage(), bill{ID: b.Next[:1], Next: b.Next[1:]}))
		}
		return err
	})
}

func (c *cashier) pay(ctx context.Context) error {
	_, err := ledger.Do(ctx, c.Object(), &c.s.kind, charge{"7", 4200}, c.s.request)
	return err
}

// charges makes two equal charges, saves a checkpoint, and makes a third one.
func (c *cashier) charges(ctx context.Context, done int) error {
	for ; done < 2; done = 2 {
		if err := errors.Join(c.pay(ctx), c.pay(ctx)); err != nil {
			return err
		}
		if err := agent.SaveCheckpoint(ctx, 2); err != nil {
			return err
		}
	}
	return c.pay(ctx)
}

// interval makes a charge, and cancels its schedule in the third run.
func (c *cashier) interval(ctx context.Context, _ string) error {
	if err := c.pay(ctx); err != nil {
		return err
	}
	all, err := collect(ledger.All(ctx, c.Object()))
	if err != nil || len(all) < 3 {
		return err
	}
	list, err := c.Schedules().List(ctx, nil)
	for _, s := range list {
		_, gone := c.Schedules().Cancel(ctx, s.ID)
		err = errors.Join(err, gone)
	}
	return err
}

// item makes a charge. Its first attempt fails after that. The first item lets another one with its ID take its place.
func (c *cashier) item(ctx context.Context, number int) error {
	if err := c.pay(ctx); err != nil {
		return err
	}
	key := fmt.Sprint("failed ", number)
	failed, _, err := dohost.Get[bool](ctx, c.Storage(), key)
	if err != nil || !failed {
		return errors.Join(err, dohost.Put(ctx, c.Storage(), key, true), errors.New("the first attempt"))
	}
	if number == 1 {
		_, err = agent.Enqueue(ctx, c, queued, 2, itemOptions())
	}
	return err
}

func itemOptions() *agent.QueueOptions {
	return &agent.QueueOptions{ID: "item", Retry: dohost.RetryPolicy{MaxAttempts: 5}}
}

// plan calls do in one event, once, however often the call is repeated.
func plan(ctx context.Context, h *dohosttest.Host, do func(context.Context, *cashier) error) error {
	return retry(ctx, func(ctx context.Context) error {
		return cashiers.Get(h, "7").Do(ctx, func(ctx context.Context, c *cashier) error {
			if planned, _, err := dohost.Get[bool](ctx, c.Storage(), "planned"); planned || err != nil {
				return err
			}
			return dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(do(ctx, c), dohost.Put(ctx, c.Storage(), "planned", true))
			})
		})
	})
}

// checkEffects checks that there are as many completed operations as effects, and no others.
func (s *shop) checkEffects(ctx context.Context, h *dohosttest.Host, want int) error {
	var all []ledger.Operation
	err := cashiers.Get(h, "7").Do(ctx, func(ctx context.Context, c *cashier) (err error) {
		all, err = collect(ledger.All(ctx, c.Object()))
		return err
	})
	if err != nil {
		return err
	}
	for _, op := range all {
		if op.Status != ledger.StatusCompleted || s.bank.Effects(string(op.ID)) != 1 || op.Position == "" {
			err = errors.Join(err, fmt.Errorf("%d effects of %+v", s.bank.Effects(string(op.ID)), op))
		}
	}
	if n := s.bank.Total(); n != want || len(all) != want {
		err = errors.Join(err, fmt.Errorf("%d effects and %d operations, want %d", n, len(all), want))
	}
	return err
}

// testWork plans work at every point of it, and checks the number of its effects.
func testWork(t *testing.T, p ledger.Policy, want int, do func(context.Context, *cashier) error) {
	s := newShop(p)
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk: pointtest.Case(p == ledger.PolicyIdempotent),
		Classes:  []dohost.Class{s.cashierClass()},
		Services: []*dohosttest.FakeService{&s.bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			return plan(ctx, h, do)
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return s.checkEffects(ctx, h, want) },
		Reset: s.reset,
	}, 15, 200))
}

// recoverable are the policies that need no operator here.
var recoverable = []ledger.Policy{ledger.PolicyIdempotent, ledger.PolicyReconcile}

func testRecoverableWork(t *testing.T, want int, do func(context.Context, *cashier) error) {
	for _, p := range recoverable {
		t.Run(p.String(), func(t *testing.T) { testWork(t, p, want, do) })
	}
}

// alarmObject is a plain object with an alarm.
type alarmObject struct {
	st *dohost.State
	s  *shop
}

const alarmObjects = dohost.Namespace[alarmObject]("bell")

func (s *shop) alarmClass() dohost.Class {
	return dohost.Bind(alarmObjects, func(_ context.Context, st *dohost.State) (*alarmObject, error) { return &alarmObject{st, s}, nil },
		&dohost.Handlers[alarmObject]{OnAlarm: (*alarmObject).onAlarm, Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)}})
}

// onAlarm makes a charge. The first run fails after that, and the second sets another alarm.
func (b *alarmObject) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	if _, err := ledger.Do(ctx, b.st, &b.s.kind, charge{"7", 4200}, b.s.request); err != nil {
		return err
	}
	ran, _, err := dohost.Get[int](ctx, b.st.Storage(), "ran")
	if err = errors.Join(err, dohost.Put(ctx, b.st.Storage(), "ran", ran+1)); err != nil {
		return err
	}
	switch ran {
	case 0:
		return errors.New("the first run")
	case 1:
		return b.st.SetAlarm(ctx, time.Now())
	}
	return nil
}
