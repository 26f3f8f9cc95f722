package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestWritersWaitForMemory fills many concurrent events of objects with every kind of
// write, under a limit with room for few of them. All events complete, and the undurable
// bytes never exceed the limit and one event's.
func TestWritersWaitForMemory(t *testing.T) {
	things := &objectstore.Collection{Name: "things"}
	big := strings.Repeat("x", 10_000)
	writes := map[string]func(ctx context.Context, c *counter, i int) error{
		"Put": func(ctx context.Context, c *counter, i int) error {
			return c.s.Put(ctx, kv, fmt.Append(nil, "row", i), []byte(big), i%2 == 0)
		},
		"Put in a transaction": func(ctx context.Context, c *counter, i int) error {
			return Transaction(ctx, func(ctx context.Context) error {
				return c.s.Put(ctx, kv, []byte("row"), []byte(big[i:]), false)
			})
		},
		"PutRow": func(ctx context.Context, c *counter, i int) error {
			_, err := c.s.PutRow(ctx, things, objectstore.RowWrite{Key: fmt.Append(nil, i), Value: []byte(big), Expect: objectstore.AnyVersion})
			return err
		},
		"EmitOutput": func(ctx context.Context, c *counter, _ int) error {
			return c.s.EmitOutput(ctx, len(big), func(error) {})
		},
		"Delete": func(ctx context.Context, c *counter, i int) error {
			err := c.s.Put(ctx, kv, fmt.Append(nil, strings.Repeat("k", 2000), i), nil, false)
			if err == nil {
				_, err = c.s.Delete(ctx, kv, fmt.Append(nil, strings.Repeat("k", 2000), i), false)
			}
			return err
		},
		"DeleteAll": func(ctx context.Context, c *counter, i int) error {
			return errors.Join(c.s.Put(ctx, kv, []byte("row"), []byte(big), false), c.s.DeleteAll(ctx))
		},
		"SetAlarm": func(ctx context.Context, c *counter, i int) error {
			return errors.Join(c.s.SetAlarm(ctx, time.Now().Add(time.Hour)), c.s.DeleteAlarm(ctx),
				c.s.Put(ctx, kv, fmt.Append(nil, "row", i), []byte(big), false))
		},
	}
	const limit, rows = 100_000, 20
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{MaxHostBytes: limit, ReserveBytes: -1}},
			Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil }})
		var wg sync.WaitGroup
		for name, write := range writes {
			for n := range 10 {
				wg.Go(func() {
					err := do(t.Context(), h, fmt.Sprint(name, n), name, func(ctx context.Context, c *counter) error {
						for i := range rows {
							if err := write(ctx, c, i); err != nil {
								return err
							}
							if n := h.store.Stats().Undurable; n > limit+2*rows*11_000 {
								return fmt.Errorf("%d bytes are not durable", n)
							}
							if i%5 == 0 { // it keeps the turn while others write
								time.Sleep(time.Millisecond)
							}
						}
						return nil
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		wg.Wait()
		synctest.Wait()
		if n := h.store.Stats().Undurable; n != 0 {
			t.Errorf("%d bytes are not durable at rest", n)
		}
	})
}

// TestWritesOfEachKindWaitForMemory has an event that takes all memory and keeps it. Each kind of
// write of another waits until that event ends; after a minute it returns ErrOverloaded,
// and with the end of its ctx the cause.
func TestWritesOfEachKindWaitForMemory(t *testing.T) {
	things := &objectstore.Collection{Name: "things"}
	errEnough := errors.New("enough")
	for name, write := range map[string]func(ctx context.Context, c *counter) error{
		"Put": func(ctx context.Context, c *counter) error { return c.put(ctx, "m", 2) },
		"PutRow": func(ctx context.Context, c *counter) error {
			_, err := c.s.PutRow(ctx, things, objectstore.RowWrite{Key: []byte("k"), Expect: objectstore.AnyVersion})
			return err
		},
		"DeleteRow": func(ctx context.Context, c *counter) error {
			_, err := c.s.DeleteRow(ctx, things, []byte("row"), objectstore.AnyVersion)
			return err
		},
		"Delete": func(ctx context.Context, c *counter) error {
			_, err := c.s.Delete(ctx, kv, []byte("n"), false)
			return err
		},
		"DeleteAll":   func(ctx context.Context, c *counter) error { return c.s.DeleteAll(ctx) },
		"SetAlarm":    func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, time.Now().Add(time.Hour)) },
		"DeleteAlarm": func(ctx context.Context, c *counter) error { return c.s.DeleteAlarm(ctx) },
		"EmitOutput":  func(ctx context.Context, c *counter) error { return c.s.EmitOutput(ctx, 1, func(error) {}) },
		"EmitOutput without the turn": func(ctx context.Context, c *counter) error {
			return Wait(ctx, func(ctx context.Context) error { return c.s.EmitOutput(ctx, 1, func(error) {}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{MaxHostBytes: 1000}, Limits: Limits{Turn: -1}},
					Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil }})
				if err := do(t.Context(), h, "a", "fill", func(ctx context.Context, c *counter) error {
					_, err := c.s.PutRow(ctx, things, objectstore.RowWrite{Key: []byte("row"), Expect: objectstore.AnyVersion})
					return errors.Join(err, c.put(ctx, "n", 1), c.s.SetAlarm(ctx, time.Now().Add(time.Hour)))
				}); err != nil {
					t.Fatal(err)
				}
				end := make(chan bool)
				for _, keeps := range []string{"keeps", "favored"} {
					go do(t.Context(), h, keeps, "keep", func(ctx context.Context, c *counter) error {
						err := c.s.Put(ctx, kv, []byte("n"), make([]byte, 960), false)
						<-end
						return err
					})
					synctest.Wait()
				}
				begun := time.Now()
				err := do(t.Context(), h, "a", name, write)
				if !errors.Is(err, ErrOverloaded) || time.Since(begun) != maxThrottle {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
				err = do(t.Context(), h, "a", name, func(ctx context.Context, c *counter) error {
					ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errEnough)
					defer cancel()
					return write(ctx, c)
				})
				if !errors.Is(err, errEnough) {
					t.Errorf("with a ctx that ended: %v", err)
				}
				done := make(chan error)
				go func() { done <- do(t.Context(), h, "a", name, write) }()
				time.Sleep(maxThrottle / 2)
				close(end)
				if err := <-done; err != nil {
					t.Errorf("with memory again: %v", err)
				}
			})
		})
	}
}

// TestMemoryPrivilegeEndsWithItsIncarnation has a hanging event that may exceed the limit: when
// its incarnation ends, another event may.
func TestMemoryPrivilegeEndsWithItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{MaxHostBytes: 1000}, Limits: Limits{Turn: -1}})
		end := make(chan bool)
		defer close(end)
		for _, name := range []string{"keeps", "favored"} {
			go do(t.Context(), h, name, "keep", func(ctx context.Context, c *counter) error {
				err := c.s.Put(ctx, kv, []byte("n"), make([]byte, 960), false)
				<-end
				return err
			})
			synctest.Wait()
		}
		done := make(chan error)
		go func() {
			done <- do(t.Context(), h, "a", "put", func(ctx context.Context, c *counter) error { return c.put(ctx, "n", 1) })
		}()
		time.Sleep(time.Second)
		if len(done) > 0 {
			t.Fatal("it did not wait")
		}
		h.Evict(id("favored"), eviction.EndFence)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTransactionLeavesNoUndo writes many rows after a transaction.
func TestTransactionLeavesNoUndo(t *testing.T) {
	h := open(t, objectstore.NewMemFS(), Options{})
	err := do(t.Context(), h, "a", "put", func(ctx context.Context, c *counter) error {
		if err := Transaction(ctx, func(ctx context.Context) error { return c.put(ctx, "n", 1) }); err != nil {
			return err
		}
		for i := range 1000 {
			if err := c.put(ctx, fmt.Sprint(i), 1); err != nil {
				return err
			}
		}
		if n := h.store.Stats().Undurable; n > 50_000 {
			return fmt.Errorf("1,000 rows count %d bytes", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
