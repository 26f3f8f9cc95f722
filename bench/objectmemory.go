package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"github.com/dohost/dohost"
)

// rest is the time after which objects count as idle: the host checks them once a second, and frees the memory that
// only a busy object needs.
const rest = 4 * time.Second

// population is a host with many objects of one class that are live at the same time.
type population struct {
	*dohost.Host
	id    func(i int) dohost.ID
	touch func(ctx context.Context, i int) (calls int, err error) // calls of this incarnation so far
}

// objectMemory measures the cost of an idle live object, and of an evicted one, in a host that evicts objects when they
// have been idle for long enough.
func objectMemory(ctx context.Context, b *bench) (err error) {
	h, err := b.open(dohost.Options{IdleAfter: time.Hour}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	n := b.objects
	p := &population{h.Host, func(i int) dohost.ID { return subjects.Get(h, name(i)).ID() },
		func(ctx context.Context, i int) (int, error) {
			return dohost.Call(ctx, subjects.Get(h, name(i)), (*subject).touch, 0)
		}}
	c, err := b.measureLive(ctx, p, n)
	if err != nil {
		return err
	}
	b.add(c.row("P7", "object", n, unsafe.Sizeof(subject{}), 400))
	b.add(Row{
		ID: "P7g", What: fmt.Sprintf("a full collection with %d live objects", n), Unit: "ms",
		Sides:  []Figure{{Side: ours, Value: median(c.collections), Rounds: c.collections, Checked: int64(n)}},
		Target: Target{Text: "≤ 500 ms", MaxValue: 500},
		Notes:  []string{"with the users' structs, which hold pointers"},
	})
	if err := p.evictLive(b.rest, n); err != nil {
		return err
	}
	time.Sleep(b.rest)
	after, _ := heapAfterGC()
	const sample = 1000
	if err := b.touchAll(ctx, p, n-sample, n, 1); err != nil {
		return err
	}
	gone := (after - c.before) / float64(n)
	b.add(Row{
		ID: "P8", What: fmt.Sprintf("memory of an evicted object, of %d", n), Unit: "B",
		Sides:  []Figure{{Side: ours, Value: max(0, gone), Rounds: []float64{gone}, Checked: sample}},
		Target: Target{Text: "0 B (below 1)", MaxValue: 1},
		Notes:  []string{"evicted long before it would have been idle for long enough"},
	})
	return nil
}

// cost is the memory of live objects.
type cost struct {
	before            float64 // the heap without them
	each              float64 // bytes of one object, the user's struct included
	goroutines, files int     // in addition to those without them
	collections       []float64
}

// row has the memory of one object in addition to the user's struct.
func (c *cost) row(id, what string, n int, self uintptr, most int) Row {
	each := c.each - float64(self)
	return Row{
		ID: id, What: fmt.Sprintf("memory of an idle live %s, of %d", what, n), Unit: "B in addition to the user's struct",
		Sides:  []Figure{{Side: ours, Value: each, Rounds: []float64{each}, Checked: int64(n)}},
		Target: Target{Text: fmt.Sprintf("≤ %s B, no goroutine", number(float64(most))), MaxValue: float64(most)},
		Notes: []string{
			fmt.Sprintf("%d goroutines more with all of them live, and %d files more", c.goroutines, c.files),
			"the memory for its idle eviction is part of it",
		},
	}
}

// measureLive measures n live objects.
func (b *bench) measureLive(ctx context.Context, p *population, n int) (c *cost, err error) {
	before, goroutines, err := b.empty(ctx, p)
	if err != nil {
		return nil, err
	}
	files := openFiles()
	if err := b.touchAll(ctx, p, 0, n, 1); err != nil {
		return nil, err
	}
	time.Sleep(b.rest)
	alive, running := heapAfterGC()
	c = &cost{
		before: before, each: (alive - before) / float64(n),
		goroutines: running - goroutines, files: openFiles() - files,
	}
	for range 5 {
		began := time.Now()
		runtime.GC()
		c.collections = append(c.collections, float64(time.Since(began).Nanoseconds())/1e6)
	}
	return c, b.touchAll(ctx, p, 0, n, 2)
}

// empty returns the heap and the number of goroutines of a host that has had objects, and so has made its permanent
// allocations.
func (b *bench) empty(ctx context.Context, p *population) (heap float64, goroutines int, err error) {
	const some = 1000
	if err := b.touchAll(ctx, p, 0, some, 1); err != nil {
		return 0, 0, err
	}
	if err := p.evictLive(0, some); err != nil {
		return 0, 0, err
	}
	time.Sleep(b.rest)
	heap, goroutines = heapAfterGC()
	return heap, goroutines, nil
}

// touchAll calls each object from the one to before the other once. It checks the number of calls of each incarnation,
// and that these objects and no others are live.
func (b *bench) touchAll(ctx context.Context, p *population, from, to, call int) error {
	err := fillBy(b, from, to, func(i int) error {
		got, err := p.touch(ctx, i)
		if err == nil && got != call {
			err = fmt.Errorf("%v has had %d calls, want %d", p.id(i), got, call)
		}
		return err
	})
	if live := p.LiveCount(); err == nil && live != to-from {
		err = fmt.Errorf("%d objects live, want %d", live, to-from)
	}
	return err
}

// evictLive evicts all n live objects, once they have been idle for a while.
func (p *population) evictLive(after time.Duration, n int) error {
	time.Sleep(after)
	for i := range n {
		p.Evict(p.id(i), dohost.EndFence)
	}
	if live := p.LiveCount(); live != 0 {
		return fmt.Errorf("%d objects live after all were evicted", live)
	}
	return nil
}

// openFiles counts the files of the process; zero if the system does not list them.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd") // missing on other systems
	return len(files)
}

// heapAfterGC returns the heap after a full collection, and the number of goroutines.
func heapAfterGC() (heap float64, goroutines int) {
	var m runtime.MemStats
	for range 4 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), runtime.NumGoroutine()
}
