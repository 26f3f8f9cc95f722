package main

import (
	"context"
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

// density measures what an idle live object costs, and an evicted one.
func density(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	defer h.Close()
	n := b.objects
	if err := fill(ctx, b, h, 1000, (*subject).touch, 0); err != nil { // what the host makes once
		return err
	}
	h.evictAll(1000)
	time.Sleep(rest)
	before, goroutines := settled()
	files := openFiles()
	if err := fill(ctx, b, h, n, (*subject).touch, 0); err != nil {
		return err
	}
	if live := h.LiveCount(); live != n {
		return fmt.Errorf("%d objects live, want %d", live, n)
	}
	time.Sleep(rest)
	alive, running := settled()
	began := time.Now()
	runtime.GC()
	collection := time.Since(began)
	h.evictAll(n)
	if live := h.LiveCount(); live != 0 {
		return fmt.Errorf("%d objects live after all were evicted", live)
	}
	time.Sleep(rest)
	after, _ := settled()
	each := (alive-before)/float64(n) - float64(unsafe.Sizeof(subject{}))
	b.add(Row{
		ID: "P7", What: fmt.Sprintf("memory of an idle live object, of %d", n), Unit: "B beside the user's struct",
		Sides:  []Figure{{Side: ours, Value: each, Rounds: []float64{each}, Checked: int64(n)}},
		Target: Target{Text: "≤ 400 B, no goroutine", ValueMost: 400},
		Notes: []string{
			fmt.Sprintf("%d goroutines more with all of them live, and %d files more", running-goroutines, openFiles()-files),
			fmt.Sprintf("a full collection takes %v with them", collection.Round(time.Millisecond)),
		},
	})
	gone := (after - before) / float64(n)
	b.add(Row{
		ID: "P8", What: fmt.Sprintf("memory of an evicted object, of %d", n), Unit: "B",
		Sides:  []Figure{{Side: ours, Value: max(0, gone), Rounds: []float64{gone}, Checked: int64(n)}},
		Target: Target{Text: "0 B (below 1)", ValueMost: 1},
	})
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
