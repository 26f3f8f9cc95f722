package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// featureObject is an object with steps that use all features of an object: keys, transactions, a
// collection with an index and a feed, the alarm, and a call to another object. The content
// of a featureObject is a function of the number of its last step.
type featureObject struct {
	st    *dohost.State
	store *dohost.Storage
}

type sale struct {
	N    int
	Paid bool
}

const (
	featureSteps = 5
	keptSteps    = 2 // keys and sales
	clearEvery   = 3 // a step of a multiple of this deletes everything first
)

var (
	featureObjects dohost.Namespace[featureObject] = "everything"
	salesFeed                                      = dohost.Feed{Name: "day", Keep: 3}
	sales                                          = dohost.Collection[sale]{
		Name:    "sales",
		Key:     func(s sale) string { return fmt.Sprintf("%04d", s.N) },
		Indexes: []dohost.Index[sale]{{Name: "paid", Of: func(s sale) dohost.Key { return dohost.KeyOf(s.Paid) + dohost.KeyOf(s.N) }}},
		Feed:    &salesFeed,
	}
)

func featureClass() dohost.Class {
	return dohost.Bind(featureObjects, func(_ context.Context, st *dohost.State) (*featureObject, error) {
		return &featureObject{st, st.Storage()}, nil
	}, &dohost.Handlers[featureObject]{OnAlarm: (*featureObject).onAlarm})
}

// lastStep returns the number of the last step.
func (c *featureObject) lastStep(ctx context.Context, _ none) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.store, "n")
	return n, err
}

func (c *featureObject) step(ctx context.Context, ledger string) (int, error) {
	n, err := c.lastStep(ctx, none{})
	if err != nil {
		return 0, err
	}
	n++
	// The ledger is at most one step ahead of the object, and never less than the next write.
	if _, err := dohost.Call(ctx, featureObjects.Get(c.st, ledger), (*featureObject).storeHighest, n); err != nil {
		return 0, err
	}
	if n%clearEvery == 0 {
		if err := c.store.DeleteAll(ctx); err != nil {
			return 0, err
		}
	}
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return c.write(ctx, n) }); err != nil {
		return 0, err
	}
	return n, c.st.SetAlarm(ctx, time.Now().Add(time.Second))
}

func (c *featureObject) write(ctx context.Context, n int) error {
	back := dohost.Transaction(ctx, func(ctx context.Context) error {
		_, err := sales.Delete(ctx, c.store, sales.Key(sale{N: n - 1}))
		return errors.Join(err, dohost.Put(ctx, c.store, "n", -1), c.st.DeleteAlarm(ctx), errRolledBack)
	})
	if !errors.Is(back, errRolledBack) {
		return back
	}
	old := n - keptSteps
	if _, err := c.store.Delete(ctx, stepKey(old)); err != nil {
		return err
	}
	if _, err := sales.Delete(ctx, c.store, sales.Key(sale{N: old})); err != nil {
		return err
	}
	if err := sales.Insert(ctx, c.store, sale{N: n}); err != nil {
		return err
	}
	if n%clearEvery > 0 && n > 1 {
		_, err := sales.Update(ctx, c.store, sales.Key(sale{N: n - 1}), func(s *sale) error { s.Paid = true; return nil })
		if err != nil {
			return err
		}
	}
	return errors.Join(
		dohost.PutMany(ctx, c.store, map[string]int{"n": n, stepKey(n): n}),
		dohost.PutNoWait(ctx, c.store, "hint", n))
}

func stepKey(n int) string { return fmt.Sprintf("row/%04d", n) }

// storeHighest stores the highest number that another object has sent.
func (c *featureObject) storeHighest(ctx context.Context, n int) (none, error) {
	return none{}, dohost.Put(ctx, c.store, "highest", n)
}

func (c *featureObject) highest(ctx context.Context, _ none) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.store, "highest")
	return n, err
}

func (c *featureObject) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	n, err := c.lastStep(ctx, none{})
	return errors.Join(err, dohost.Put(ctx, c.store, "delivered", n))
}

// everythingRun has the last step of the object that its client knows.
type everythingRun struct{ acked int }

// run asks for steps. After an unknown outcome it reads the last step of the object, and continues
// from there.
func (g *everythingRun) run(ctx context.Context, h *dohosttest.Host) error {
	for g.acked < featureSteps {
		n, err := dohost.Call(ctx, featureObjects.Get(h, "a"), (*featureObject).step, "b")
		if err == nil {
			if n != g.acked+1 {
				return fmt.Errorf("step %d comes after %d", n, g.acked)
			}
			g.acked = n
			continue
		}
		h.Advance(time.Second)
		if n, err = retryCall(ctx, featureObjects.Get(h, "a"), (*featureObject).lastStep, none{}); err != nil {
			return err
		}
		if n != g.acked && n != g.acked+1 {
			return fmt.Errorf("the object is at step %d, %d were acknowledged", n, g.acked)
		}
		g.acked = n
	}
	return nil
}

func (g *everythingRun) check(ctx context.Context, h *dohosttest.Host) error {
	got, err := dohost.Call(ctx, featureObjects.Get(h, "a"), (*featureObject).contents, none{})
	highest, err2 := dohost.Call(ctx, featureObjects.Get(h, "b"), (*featureObject).highest, none{})
	return errors.Join(err, err2, differ("object a", got, wantContents(g.acked)), differ("the highest number of object b", highest, g.acked))
}

// newEverything has all features together.
func newEverything() dohosttest.Scenario {
	g := new(everythingRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{featureClass()},
		Places:  objectPlaces,
		Reset:   func() { *g = everythingRun{} },
		Run:     g.run,
		Check:   g.check,
	}
}
