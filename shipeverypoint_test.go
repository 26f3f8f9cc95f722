package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/objectstore"
)

// unkindArchive is an archive in memory. It refuses every fourth object, and stores every seventh without an answer.
type unkindArchive struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    int
}

func (a *unkindArchive) Put(_ context.Context, name string, content []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.puts++; a.puts%4 == 0 {
		return errors.New("the archive is busy")
	}
	if old, ok := a.objects[name]; ok && !bytes.Equal(old, content) {
		return fmt.Errorf("%s is there, with another content", name)
	}
	a.objects[name] = bytes.Clone(content)
	if a.puts%7 == 0 {
		return errors.New("the answer of the archive is lost")
	}
	return nil
}

func (a *unkindArchive) List(context.Context) (list []dohost.ArchiveObject, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.objects)) {
		list = append(list, dohost.ArchiveObject{Name: name, Size: int64(len(a.objects[name]))})
	}
	return list, nil
}

func (a *unkindArchive) Get(_ context.Context, name string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	content, ok := a.objects[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", dohost.ErrNotFound, name)
	}
	return content, nil
}

// retryStep makes a step of an object, and repeats it after errors. It returns the step, and how often it was tried.
func retryStep(ctx context.Context, h *dohosttest.Host) (n, tries int, err error) {
	err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		tries++
		n, err = dohost.Call(ctx, featureObjects.Get(h, "a"), (*featureObject).step, "b")
		return err
	})
	return n, tries, err
}

// shippedPoints is a client of an object that is shipped.
type shippedPoints struct {
	archive unkindArchive
	acked   int // steps
	between int // restored stores that are neither empty nor as of the newest step, in all runs
}

const shippedSteps = 6

func (p *shippedPoints) run(ctx context.Context, h *dohosttest.Host) error {
	for range shippedSteps {
		n, _, err := retryStep(ctx, h)
		if err != nil {
			return err
		}
		p.acked = n
		h.Advance(700 * time.Millisecond) // some records are shipped alone, some with others
	}
	return nil
}

// check restores the newest record, and one in the middle. Each restored store has the object as it was after a step, and no record is
// missing at the end.
func (p *shippedPoints) check(ctx context.Context, h *dohosttest.Host) error {
	var live int
	err := featureObjects.Get(h, "a").Do(ctx, func(ctx context.Context, c *featureObject) (err error) {
		live, err = c.check(ctx)
		return err
	})
	if err != nil || live < p.acked {
		return fmt.Errorf("the object is at step %d of %d acknowledged: %w", live, p.acked, err)
	}
	ship := h.Host().Stats().Ship
	for tries := 0; ship.Records > 0 || ship.NeedsBase; tries++ {
		if tries == 20 {
			return fmt.Errorf("nothing is shipped any more: %+v", ship)
		}
		h.Advance(10 * time.Second)
		ship = h.Host().Stats().Ship
	}
	newest, err := p.restoredStep(ctx, 0)
	if err != nil || newest != live {
		return fmt.Errorf("the newest record has step %d, the store %d: %w", newest, live, err)
	}
	middle, err := p.restoredStep(ctx, ship.Shipped/2)
	if errors.Is(err, dohost.ErrNotFound) {
		return nil // before the first base
	}
	if err != nil || middle > newest {
		return fmt.Errorf("record %d of %d has step %d of %d: %w", ship.Shipped/2, ship.Shipped, middle, newest, err)
	}
	if middle > 0 && middle < newest {
		p.between++
	}
	return nil
}

// restoredStep restores a record, and returns the step that the object is at in that store.
func (p *shippedPoints) restoredStep(ctx context.Context, record uint64) (int, error) {
	fs := objectstore.NewMemFS()
	if _, err := objectstore.Restore(ctx, &p.archive, "data", dohost.RestorePoint{Record: record}, &objectstore.Options{FS: fs}); err != nil {
		return 0, err
	}
	return afterCrash(ctx, fs)
}

// TestShippingAtEveryPoint ends the object and its process at every point while its records are shipped.
func TestShippingAtEveryPoint(t *testing.T) {
	p := &shippedPoints{}
	s := dohosttest.Scenario{ // without FullDisk: step 6 deletes all rows before its first write, so its repetition is step 1
		Classes: []dohost.Class{featureClass()},
		Places:  pointtest.Places(),
		Options: dohost.Options{Ship: &p.archive},
		Reset: func() {
			p.archive.objects, p.archive.puts, p.acked = map[string][]byte{}, 0, 0
		},
		Run:     p.run,
		Check:   p.check,
		Batched: true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 15, 30))
	if p.between == 0 && !t.Failed() {
		t.Error("no restored store was as of a step in the middle")
	}
	t.Logf("%d restored stores were as of a step in the middle", p.between)
}

// restoredPoints is a client that restores an object to an earlier state.
type restoredPoints struct {
	archive  unkindArchive
	at       int // the step at the bookmark
	restored bool
	tries    int // of the step after the restore
	acked    bool
}

func (p *restoredPoints) run(ctx context.Context, h *dohosttest.Host) error {
	idempotent := &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}
	for range 2 {
		if _, _, err := retryStep(ctx, h); err != nil {
			return err
		}
	}
	var at dohost.Bookmark
	err := dohost.Retry(ctx, idempotent, func(ctx context.Context) error {
		return featureObjects.Get(h, "a").Do(ctx, func(ctx context.Context, c *featureObject) error {
			n, _, err := dohost.Get[int](ctx, c.store, "n")
			if err == nil {
				at, err = c.st.Bookmark(ctx)
			}
			p.at = n
			return err
		})
	})
	for range 2 {
		if err == nil {
			_, _, err = retryStep(ctx, h)
		}
	}
	if err != nil {
		return err
	}
	err = dohost.Retry(ctx, idempotent, func(ctx context.Context) error {
		_, err := h.Host().RestoreObject(ctx, featureObjects.Get(h, "a").ID(), dohost.RestorePoint{Bookmark: at})
		return err
	})
	if err != nil {
		return err
	}
	p.restored = true
	h.Advance(2 * time.Second) // the restored alarm fires
	if err := dohost.Retry(ctx, idempotent, func(ctx context.Context) error { return p.check(ctx, h) }); err != nil {
		return err
	}
	_, p.tries, err = retryStep(ctx, h)
	p.acked = err == nil
	return err
}

// check accepts only whole states: the contents of the object are a function of its step.
func (p *restoredPoints) check(ctx context.Context, h *dohosttest.Host) error {
	return featureObjects.Get(h, "a").Do(ctx, func(ctx context.Context, c *featureObject) error {
		n, err := c.check(ctx)
		if err == nil && p.restored && (n < p.at || n > p.at+p.tries || p.acked && n == p.at) {
			err = fmt.Errorf("step %d after a restore of step %d and %d tries of a step, acknowledged: %v", n, p.at, p.tries, p.acked)
		}
		return err
	})
}

// TestRestoreOfAnObjectAtEveryPoint ends the object and its process at every point of a restore, and of the steps around it.
func TestRestoreOfAnObjectAtEveryPoint(t *testing.T) {
	p := &restoredPoints{}
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{featureClass()},
		Places:   pointtest.Places(),
		Options:  dohost.Options{Ship: &p.archive},
		Reset: func() {
			p.archive.objects, p.archive.puts = map[string][]byte{}, 0
			p.at, p.restored, p.tries, p.acked = 0, false, 0, false
		},
		Run:     p.run,
		Check:   p.check,
		Batched: true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 15, 30))
}
