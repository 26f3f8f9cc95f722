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

func TestFiberStartAtEveryPoint(t *testing.T) {
	testRecoverableWork(t, 3, func(ctx context.Context, c *cashier) error {
		_, err := agent.StartFiber(ctx, c, threeCharges, 0, nil)
		return err
	})
}

// TestRunFiberInScheduleAtEveryPoint repeats a schedule's run, and resumes the fiber that the interrupted run has left.
func TestRunFiberInScheduleAtEveryPoint(t *testing.T) {
	testRecoverableWork(t, 3, func(ctx context.Context, c *cashier) error {
		_, err := agent.Schedule(ctx, c, agent.After(time.Second), runsThree, "", nil)
		return err
	})
}

func TestIntervalAtEveryPoint(t *testing.T) {
	testRecoverableWork(t, 3, func(ctx context.Context, c *cashier) error {
		_, err := agent.Schedule(ctx, c, agent.Every(2*time.Second), everyTwo, "", nil)
		return err
	})
}

// TestQueueItemsAtEveryPoint runs two items with one ID, each in two attempts or more.
func TestQueueItemsAtEveryPoint(t *testing.T) {
	testRecoverableWork(t, 2, func(ctx context.Context, c *cashier) error {
		_, err := agent.Enqueue(ctx, c, queued, 1, itemOptions())
		return err
	})
}

// TestRowsAtEveryPoint has three rows that are work, one after the other, each with two calls or more. The third has the key of
// the first.
func TestRowsAtEveryPoint(t *testing.T) {
	testRecoverableWork(t, 3, func(ctx context.Context, c *cashier) error {
		return bills.Insert(ctx, c.Storage(), bill{ID: "1", Next: "21"})
	})
}

// TestAlarmsAtEveryPoint runs the handler of one alarm twice or more, and then that of another.
func TestAlarmsAtEveryPoint(t *testing.T) {
	for _, p := range recoverable {
		t.Run(p.String(), func(t *testing.T) {
			s := newShop(p)
			dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
				FullDisk: pointtest.Case(p == ledger.PolicyIdempotent),
				Classes:  []dohost.Class{s.alarmClass()},
				Services: []*dohosttest.FakeService{&s.bank},
				Run: func(ctx context.Context, h *dohosttest.Host) error {
					return retry(ctx, func(ctx context.Context) error {
						return alarmObjects.Get(h, "7").Do(ctx, func(ctx context.Context, b *alarmObject) error {
							planned, _, err := dohost.Get[bool](ctx, b.st.Storage(), "planned")
							if planned || err != nil {
								return err
							}
							return dohost.Transaction(ctx, func(ctx context.Context) error {
								return errors.Join(b.st.SetAlarm(ctx, time.Now()), dohost.Put(ctx, b.st.Storage(), "planned", true))
							})
						})
					})
				},
				Check: func(context.Context, *dohosttest.Host) error {
					if n := s.bank.Total(); n != 2 {
						return fmt.Errorf("%d effects, want 2", n)
					}
					return nil
				},
				Reset: s.reset,
			}, 15, 200))
		})
	}
}

// TestAlarmThatConstructorMoves lets the constructor set the alarm while the delivery of another one wakes the object. The runs
// after an interruption and after a failure repeat the first run. The alarm that a constructor has set before a run that succeeds
// is another one.
func TestAlarmThatConstructorMoves(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	moves, runs := false, 0
	class := dohost.Bind(alarmObjects, func(ctx context.Context, st *dohost.State) (*alarmObject, error) {
		if !moves {
			return &alarmObject{st, s}, nil
		}
		moves = runs < 3
		return &alarmObject{st, s}, st.SetAlarm(ctx, time.Now().Add(time.Minute))
	}, &dohost.Handlers[alarmObject]{Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)}, OnAlarm: func(b *alarmObject, ctx context.Context, _ dohost.AlarmInfo) error {
		_, err := ledger.Do(ctx, b.st, &s.kind, charge{"7", 4200}, s.request)
		switch runs++; runs {
		case 1:
			return errors.Join(err, dohost.Sleep(ctx, time.Hour))
		case 2:
			return errors.Join(err, errTimeout)
		}
		return err
	}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := alarmObjects.Get(h, "7").Do(t.Context(), func(ctx context.Context, b *alarmObject) error {
			return b.st.SetAlarm(ctx, time.Now().Add(time.Second))
		})
		if err != nil {
			t.Fatal(err)
		}
		h.EvictAll()
		moves = true
		h.Advance(2 * time.Second)
		if !h.Evict(dohost.ID{Class: "bell", Name: "7"}, dohost.EndFence) || runs != 1 {
			t.Fatalf("%d runs, want 1", runs)
		}
		h.Advance(80 * time.Second)
		h.EvictAll()
		h.Advance(5 * time.Minute)
		if runs != 4 || len(s.calls()) != 2 {
			t.Errorf("%d calls in %d runs, want 2 in 4", len(s.calls()), runs)
		}
	})
}

// resolveFiber resolves the unknown operations of a fiber by the effects at the bank, and restarts the fiber, until it has
// completed. It checks that the fiber has failed because an operation was unknown.
func (s *shop) resolveFiber(ctx context.Context, h *dohosttest.Host) error {
	at := cashiers.Get(h, "7")
	for range 5 {
		var info agent.FiberInfo
		err := retry(ctx, func(ctx context.Context) error {
			return at.Do(ctx, func(ctx context.Context, c *cashier) error {
				started, ok, err := c.Fibers().GetByKey(ctx, "three")
				if err != nil || !ok {
					return errors.Join(err, dohost.ErrNotFound)
				}
				info, _, err = c.Fibers().Wait(ctx, started.ID)
				return err
			})
		})
		if err != nil || info.Status == agent.FiberCompleted {
			return err
		}
		err = retry(ctx, func(ctx context.Context) error {
			return at.Do(ctx, func(ctx context.Context, c *cashier) error { return c.resolve(ctx, info.ID) })
		})
		if err != nil {
			return err
		}
	}
	return errors.New("the fiber has failed five times")
}

// resolve resolves the unknown operations, and restarts the fiber.
func (c *cashier) resolve(ctx context.Context, fiber string) error {
	info, ok, err := c.Fibers().Get(ctx, fiber)
	if err != nil || !ok || info.Status != agent.FiberFailed { // an earlier call has restarted it
		return err
	}
	unknown, err := collect(ledger.Unfinished(ctx, c.Object()))
	if err != nil || len(unknown) != 1 || unknown[0].Status != ledger.StatusUnknown {
		return fmt.Errorf("the fiber has failed with %s, and the unfinished operations are %+v, %w", info.Error, unknown, err)
	}
	id := unknown[0].ID
	if c.s.bank.Effects(string(id)) == 1 {
		err = ledger.ResolveDone(ctx, c.Object(), &c.s.kind, id, receipt(id))
	} else {
		err = ledger.ResolveNotDone(ctx, c.Object(), &c.s.kind, id)
	}
	_, restarted := c.Fibers().Restart(ctx, fiber)
	return errors.Join(err, restarted)
}

// TestFiberAtMostOnceAtEveryPoint lets an operator resolve the operations that are unknown.
func TestFiberAtMostOnceAtEveryPoint(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{s.cashierClass()},
		Services: []*dohosttest.FakeService{&s.bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := plan(ctx, h, func(ctx context.Context, c *cashier) error {
				_, err := agent.StartFiber(ctx, c, threeCharges, 0, &agent.FiberOptions{Key: "three"})
				return err
			})
			return errors.Join(err, s.resolveFiber(ctx, h))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			if n := s.bank.Total(); n > 3 {
				return fmt.Errorf("%d effects, want at most 3", n)
			}
			if err := s.resolveFiber(ctx, h); err != nil { // the second of a pair may have ended the run
				return err
			}
			return s.checkEffects(ctx, h, 3)
		},
		Reset: s.reset,
	}, 15, 200))
}
