package alarm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Random sets, clears and cut-offs over few objects with a tiny memory. Every alarm
// that stays set is delivered, none early, one of an object at a time.
func TestSchedulerRandomModel(t *testing.T) {
	bad := map[string]int{}
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				x := newIndex()
				limit := []int{8, 16, 64}[seed%3]
				s := x.start(Config{Limit: limit, Concurrency: 3})
				s.cfg.Window = func(ctx context.Context, class string, p objectstore.AlarmPos, n int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
					as, pos, err := x.window(ctx, class, p, n)
					time.Sleep(3 * time.Millisecond) // changes land between the snapshot and its use
					return as, pos, err
				}
				early := 0
				x.onDeliver = func(a objectstore.Alarm) {
					if time.Now().Round(0).Before(a.Due) {
						early++
					}
					// The receiver compares generations, and drops superseded deliveries.
					d := time.Duration(a.Generation%7) * time.Millisecond
					again := a.Generation%5 == 0 && (a.Generation/5+uint64(len(x.delivered)))%3 != 0
					go func() { time.Sleep(d); x.done(a, again) }()
				}
				for i := range 30 {
					x.set(fmt.Sprint("p", i), time.Now().Add(time.Duration(r.IntN(20000))*time.Millisecond), nil)
				}
				s.Start()
				for range 600 {
					time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
					n := fmt.Sprint("o", r.IntN(40))
					switch r.IntN(5) {
					case 0:
						x.clear(id(n))
					default:
						x.set(n, time.Now().Add(time.Duration(r.IntN(4000)-500)*time.Millisecond), nil)
					}
					if m, _ := s.Pending(); m > limit+3 {
						bad["memory"]++
					}
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				x.mu.Lock()
				left := len(x.slots)
				x.mu.Unlock()
				if left > 0 {
					bad["lost"]++
					t.Errorf("%d alarms never delivered", left)
				}
				if early > 0 || len(x.doubles) > 0 {
					t.Errorf("early %d, doubles %v", early, x.doubles)
				}
				s.Stop()
				time.Sleep(time.Minute)
			})
		})
	}
	t.Log(bad)
}

// onlyC lists the class of all alarms.
func onlyC(context.Context) ([]string, error) { return []string{"c"}, nil }

func TestSchedulerDeliversManyOverdueAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		due := time.Now().Add(-time.Second).Truncate(time.Millisecond)
		as := make([]objectstore.Alarm, 100_000)
		for i := range as {
			as[i] = objectstore.Alarm{ID: id(fmt.Sprintf("%06d", i)), Due: due, Generation: uint64(i + 1)}
		}
		reads, most, out, n := 0, 0, 0, 0
		s := NewScheduler(context.Background(), Config{
			Classes: onlyC,
			Window: func(_ context.Context, class string, p objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
				if class == "" {
					return nil, p, nil // no suspects
				}
				reads++
				from := x.at0[p]
				to := min(from+limit, len(as))
				if to == from {
					return nil, p, nil
				}
				x.at0[as[to-1].Pos()] = to
				return as[from:to], as[to-1].Pos(), nil
			},
		})
		s.cfg.Deliver = func(a Delivery) {
			x.mu.Lock()
			n++
			out++
			most = max(most, out)
			x.mu.Unlock()
			go func() {
				time.Sleep(time.Millisecond)
				x.mu.Lock()
				out--
				x.mu.Unlock()
				s.Changed([]objectstore.AlarmChange{{ID: a.ID}})
				s.Done(a.Alarm, false)
			}()
		}
		s.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		t.Log("delivered", n, "most out", most, "reads", reads)
		if n != len(as) || most > 256 {
			t.Error("wrong")
		}
		s.Stop()
	})
}

// TestSchedulerCostIsIndependentOfStoredAlarms has one alarm due each second, from an hour on. The number of alarms
// changes neither the reads at the start nor the alarms in memory.
func TestSchedulerCostIsIndependentOfStoredAlarms(t *testing.T) {
	for _, stored := range []int{10_000, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			first := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			nth := func(i int) objectstore.Alarm {
				return objectstore.Alarm{ID: id(fmt.Sprintf("%07d", i)), Due: first.Add(time.Duration(i) * time.Second), Generation: uint64(i + 1)}
			}
			at := map[objectstore.AlarmPos]int{}
			reads, rows, n := 0, 0, 0
			var s *Scheduler
			s = NewScheduler(context.Background(), Config{
				Classes: onlyC,
				Window: func(_ context.Context, class string, p objectstore.AlarmPos, limit int) (as []objectstore.Alarm, _ objectstore.AlarmPos, _ error) {
					if class == "" {
						return nil, p, nil // no suspects
					}
					reads++
					i := at[p]
					for ; i < stored && len(as) < limit; i++ {
						as = append(as, nth(i))
					}
					if rows += len(as); len(as) > 0 {
						p = as[len(as)-1].Pos()
						at[p] = i
					}
					return as, p, nil
				},
				Deliver: func(d Delivery) {
					n++
					go func() {
						s.Changed([]objectstore.AlarmChange{{ID: d.ID}})
						s.Done(d.Alarm, false)
					}()
				},
			})
			s.Start()
			synctest.Wait()
			if waiting, next := s.Pending(); reads != 1 || rows > 4096 || waiting > 4096 || !next.Equal(first) {
				t.Errorf("%d stored: %d reads of %d rows at the start, %d in memory, next %v", stored, reads, rows, waiting, next)
			}
			time.Sleep(time.Hour + 6000*time.Second - time.Millisecond)
			synctest.Wait()
			if waiting, _ := s.Pending(); n != 6000 || reads > 5 || waiting > 8192 {
				t.Errorf("%d stored: %d were delivered after %d reads, %d in memory", stored, n, reads, waiting)
			}
			s.Stop()
		})
	}
}
