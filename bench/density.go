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

// rest is how long objects have had nothing to do before they count as idle: the host
// looks at them once a second, and takes away what only a busy one needs.
const rest = 4 * time.Second

// density measures what an idle live object costs, and an evicted one, in a host that will
// evict objects when they have been idle for long enough.
func density(ctx context.Context, b *bench) (err error) {
	h, err := b.open(dohost.Options{IdleAfter: time.Hour}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	before, err := b.alive(ctx, h)
	if err != nil {
		return err
	}
	n := b.objects
	if err := h.evictLive(b.rest, n); err != nil {
		return err
	}
	time.Sleep(b.rest)
	after, _ := settled()
	const sample = 1000
	if err := b.touchAll(ctx, h, n-sample, n, 1); err != nil {
		return err
	}
	gone := (after - before) / float64(n)
	b.add(Row{
		ID: "P8", What: fmt.Sprintf("memory of an evicted object, of %d", n), Unit: "B",
		Sides:  []Figure{{Side: ours, Value: max(0, gone), Rounds: []float64{gone}, Checked: sample}},
		Target: Target{Text: "0 B (below 1)", ValueMost: 1},
		Notes:  []string{"evicted long before it would have been idle for long enough"},
	})
	return nil
}

// alive measures live objects. It returns the heap without them.
func (b *bench) alive(ctx context.Context, h *host) (heap float64, err error) {
	n := b.objects
	before, goroutines, err := b.empty(ctx, h)
	if err != nil {
		return 0, err
	}
	files := openFiles()
	if err := b.touchAll(ctx, h, 0, n, 1); err != nil {
		return 0, err
	}
	time.Sleep(b.rest)
	alive, running := settled()
	open := openFiles()
	var collections []float64
	for range 5 {
		began := time.Now()
		runtime.GC()
		collections = append(collections, float64(time.Since(began).Nanoseconds())/1e6)
	}
	if err := b.touchAll(ctx, h, 0, n, 2); err != nil {
		return 0, err
	}
	each := (alive-before)/float64(n) - float64(unsafe.Sizeof(subject{}))
	b.add(Row{
		ID: "P7", What: fmt.Sprintf("memory of an idle live object, of %d", n), Unit: "B beside the user's struct",
		Sides:  []Figure{{Side: ours, Value: each, Rounds: []float64{each}, Checked: int64(n)}},
		Target: Target{Text: "≤ 400 B, no goroutine", ValueMost: 400},
		Notes: []string{
			fmt.Sprintf("%d goroutines more with all of them live, and %d files more", running-goroutines, open-files),
			"its place in the wheel of those that will be evicted for idleness is part of it",
		},
	})
	b.add(Row{
		ID: "P7g", What: fmt.Sprintf("a full collection with %d live objects", n), Unit: "ms",
		Sides:  []Figure{{Side: ours, Value: median(collections), Rounds: collections, Checked: int64(n)}},
		Target: Target{Text: "≤ 500 ms", ValueMost: 500},
		Notes:  []string{"with the users' structs, which hold pointers"},
	})
	return before, nil
}

// empty is the heap of a host that has had objects, and the number of goroutines: with
// what it makes once.
func (b *bench) empty(ctx context.Context, h *host) (heap float64, goroutines int, err error) {
	const some = 1000
	if err := b.touchAll(ctx, h, 0, some, 1); err != nil {
		return 0, 0, err
	}
	if err := h.evictLive(0, some); err != nil {
		return 0, 0, err
	}
	time.Sleep(b.rest)
	heap, goroutines = settled()
	return heap, goroutines, nil
}

// touchAll calls each object from the one to before the other once, and checks that it is
// the so many-th call of its incarnation, and that these objects live, and no others.
func (b *bench) touchAll(ctx context.Context, h *host, from, to, call int) error {
	err := fillBy(b, from, to, func(i int) error {
		s := subjects.Get(h, name(i))
		got, err := dohost.Call(ctx, s, (*subject).touch, 0)
		if err == nil && got != call {
			err = fmt.Errorf("%v has had %d calls, want %d", s.ID(), got, call)
		}
		return err
	})
	if live := h.LiveCount(); err == nil && live != to-from {
		err = fmt.Errorf("%d objects live, want %d", live, to-from)
	}
	return err
}

// evictLive evicts so many objects, which are all that live, once they have had nothing
// to do for a while.
func (h *host) evictLive(after time.Duration, n int) error {
	time.Sleep(after)
	h.evictAll(n)
	if live := h.LiveCount(); live != 0 {
		return fmt.Errorf("%d objects live after all were evicted", live)
	}
	return nil
}

// openFiles counts those of the process; where the system does not tell, none.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd") // of another system
	return len(files)
}

// settled is the heap when nothing is left to collect, and the number of goroutines.
func settled() (heap float64, goroutines int) {
	var m runtime.MemStats
	for range 4 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), runtime.NumGoroutine()
}
