package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// featureObject is an object. Its step n uses all of an object's features: keys, transactions, collections with indexes
// and a feed, the alarm, and a call to another object. Its contents are a function of the number of its last step.
type featureObject struct {
	st    *dohost.State
	store *dohost.Storage
}

type sale struct {
	N    int
	Paid bool
}

const keptRows = 5 // keys and sales that an object keeps

var (
	featureObjects dohost.Namespace[featureObject] = "till"
	day                                            = dohost.Feed{Name: "day", Keep: 7}
	sales                                          = dohost.Collection[sale]{
		Name:    "sales",
		Key:     func(s sale) string { return fmt.Sprintf("%04d", s.N) },
		Indexes: []dohost.Index[sale]{{Name: "paid", Of: func(s sale) dohost.Key { return dohost.KeyOf(s.Paid) + dohost.KeyOf(s.N) }}},
		Feed:    &day,
	}
)

func featureClass() dohost.Class {
	return dohost.Bind(featureObjects, func(_ context.Context, st *dohost.State) (*featureObject, error) {
		return &featureObject{st, st.Storage()}, nil
	}, &dohost.Handlers[featureObject]{OnAlarm: (*featureObject).alarm})
}

func (c *featureObject) step(ctx context.Context, ledger string) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.store, "n")
	if err != nil {
		return 0, err
	}
	n++
	// The ledger is at most one step ahead, and never older than the next write.
	if _, err := dohost.Call(ctx, featureObjects.Get(c.st, ledger), (*featureObject).storeHighest, n); err != nil {
		return 0, err
	}
	if n%6 == 0 { // starts again without rows
		if err := c.store.DeleteAll(ctx); err != nil {
			return 0, err
		}
	}
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return c.write(ctx, n) }); err != nil {
		return 0, err
	}
	return n, c.st.SetAlarm(ctx, time.Now().Add(time.Second))
}

var errRollback = errors.New("taken back")

func (c *featureObject) write(ctx context.Context, n int) error {
	back := dohost.Transaction(ctx, func(ctx context.Context) error {
		_, err := sales.Delete(ctx, c.store, sales.Key(sale{N: n - 1}))
		return errors.Join(err, dohost.Put(ctx, c.store, "n", -1), c.st.DeleteAlarm(ctx), errRollback)
	})
	if !errors.Is(back, errRollback) {
		return back
	}
	old := n - keptRows
	if _, err := c.store.Delete(ctx, rowKey(old)); err != nil {
		return err
	}
	if _, err := sales.Delete(ctx, c.store, sales.Key(sale{N: old})); err != nil {
		return err
	}
	if err := sales.Insert(ctx, c.store, sale{N: n}); err != nil {
		return err
	}
	if n%6 > 0 && n > 1 {
		_, err := sales.Update(ctx, c.store, sales.Key(sale{N: n - 1}), func(s *sale) error { s.Paid = true; return nil })
		if err != nil {
			return err
		}
	}
	return errors.Join(
		dohost.PutMany(ctx, c.store, map[string]int{"n": n, rowKey(n): n}),
		dohost.PutNoWait(ctx, c.store, "hint", n),
	)
}

func rowKey(n int) string { return fmt.Sprintf("row/%04d", n) }

// storeHighest stores the highest number that another object has sent.
func (c *featureObject) storeHighest(ctx context.Context, n int) (int, error) {
	return n, dohost.Put(ctx, c.store, "raised", n)
}

func (c *featureObject) alarm(ctx context.Context, _ dohost.AlarmInfo) error {
	n, _, err := dohost.Get[int](ctx, c.store, "n")
	return errors.Join(err, dohost.Put(ctx, c.store, "delivered", n))
}

// contents returns the contents that an object must have an hour after step n.
func contents(n int) (keys map[string]int, paid map[int]bool) {
	keys, paid = map[string]int{}, map[int]bool{}
	if n == 0 {
		return keys, paid
	}
	keys["n"], keys["hint"], keys["delivered"] = n, n, n
	for i := max(1, n-keptRows+1, n-n%6); i <= n; i++ {
		keys[rowKey(i)] = i
		paid[i] = i < n
	}
	return keys, paid
}

// check compares an object with its expected contents and returns the number of its last step.
func (c *featureObject) check(ctx context.Context) (n int, err error) {
	n, _, err = dohost.Get[int](ctx, c.store, "n")
	if err != nil {
		return n, err
	}
	wantKeys, wantPaid := contents(n)
	keys := map[string]int{}
	for item, err := range dohost.All[int](ctx, c.store, nil) {
		if err != nil {
			return n, err
		}
		keys[item.Key] = item.Value
	}
	if !maps.Equal(keys, wantKeys) {
		return n, fmt.Errorf("step %d: keys %v, want %v", n, keys, wantKeys)
	}
	paid := map[int]bool{}
	for row, err := range sales.All(ctx, c.store, nil) {
		if err != nil {
			return n, err
		}
		paid[row.Value.N] = row.Value.Paid
	}
	if !maps.Equal(paid, wantPaid) {
		return n, fmt.Errorf("step %d: sales %v, want %v", n, paid, wantPaid)
	}
	open, err := sales.List(ctx, c.store, &dohost.Query[sale]{Index: "paid", Prefix: dohost.KeyOf(false)})
	if err != nil {
		return n, err
	}
	if n > 0 && (len(open) != 1 || open[0].Value.N != n) {
		return n, fmt.Errorf("step %d: the index has %v as not paid", n, open)
	}
	if at, ok, err := c.st.GetAlarm(ctx); err != nil || ok {
		return n, fmt.Errorf("step %d: an alarm is set for %v, %w", n, at, err)
	}
	return n, nil
}

// TestCrashAtAnyWriteLosesNothingAcknowledged takes the image that a power cut leaves before every write to the
// disk, and opens it an hour later.
func TestCrashAtAnyWriteLosesNothingAcknowledged(t *testing.T) {
	type image struct {
		fs    *objectstore.FS
		acked int64
		what  string
	}
	synctest.Test(t, func(t *testing.T) {
		const steps = 20
		var (
			mu     sync.Mutex // Pebble writes from several goroutines
			images []image
			acked  atomic.Int64
		)
		fs := objectstore.NewMemFS()
		fs.OnWrite(func(op, path string, k int64) error {
			mu.Lock()
			defer mu.Unlock()
			for _, percent := range []int{0, 50, 100} {
				what := fmt.Sprintf("power cut at write %d (%s %s), %d%% of the rest survives", k, op, path, percent)
				images = append(images, image{fs.Crash(percent, uint64(k)), acked.Load(), what})
			}
			return nil
		})
		h := openOn(t, fs, nil, featureClass())
		for i := range steps {
			n, err := dohost.Call(t.Context(), featureObjects.Get(h, "a"), (*featureObject).step, "b")
			if err != nil || n != i+1 {
				t.Fatalf("step %d: %d, %v", i+1, n, err)
			}
			acked.Store(int64(n))
			if i%3 == 0 {
				h.Evict(featureObjects.Get(h, "a").ID(), dohost.EndCrash)
			}
			if i%8 == 7 {
				time.Sleep(time.Minute) // the alarm fires
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		fs.OnWrite(nil)
		seen := map[int]int{}
		for _, im := range images {
			n, err := afterCrash(t.Context(), im.fs)
			if err != nil || int64(n) < im.acked {
				t.Fatalf("%s: step %d of %d acknowledged; %v", im.what, n, im.acked, err)
			}
			seen[n]++
		}
		if len(images) < 3*steps || len(seen) < steps {
			t.Errorf("only %d images of %d different steps", len(images), len(seen))
		}
		t.Logf("%d images of %d different steps", len(images), len(seen))
	})
}

// afterCrash opens the image, and returns the last step of the object.
func afterCrash(ctx context.Context, fs *objectstore.FS) (n int, err error) {
	h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), featureClass())
	if err != nil {
		return 0, err
	}
	time.Sleep(time.Hour)
	err = featureObjects.Get(h, "a").Do(ctx, func(ctx context.Context, c *featureObject) error {
		n, err = c.check(ctx)
		return err
	})
	var highest int
	err = errors.Join(err, featureObjects.Get(h, "b").Do(ctx, func(ctx context.Context, c *featureObject) error {
		highest, _, err = dohost.Get[int](ctx, c.store, "raised")
		return err
	}))
	if highest != n && highest != n+1 {
		err = errors.Join(err, fmt.Errorf("the ledger was raised to %d, the till is at %d", highest, n))
	}
	if err := errors.Join(err, h.Close()); err != nil {
		return n, err
	}
	s, err := objectstore.Open("data", &objectstore.Options{FS: fs, ReadOnly: true})
	if err != nil {
		return n, err
	}
	var problems []string
	_, err = s.Check(ctx, func(p objectstore.Problem) { problems = append(problems, fmt.Sprint(p)) })
	if len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("the store is not sound: %v", slices.Compact(problems)))
	}
	return n, errors.Join(err, s.Close())
}
