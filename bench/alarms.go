package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dohost/dohost"
)

// alarmTimes notes when alarms fire.
type alarmTimes struct {
	mu    sync.Mutex
	hist  *hdrhistogram.Histogram // how late, in ns
	fires map[string]int
	first time.Time
	last  time.Time
	all   chan struct{} // closed when all awaited alarms have fired
	want  int
	heap  uint64 // the maximum, sampled at every thousandth
}

func newAlarmTimes(want int) *alarmTimes {
	return &alarmTimes{hist: newHistogram(), fires: make(map[string]int, want), all: make(chan struct{}), want: want}
}

func (bs *alarmTimes) fired(id dohost.ID, a dohost.AlarmInfo) {
	now := time.Now()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.first.IsZero() {
		bs.first = now
	}
	bs.last = now
	if err := record(bs.hist, now.Sub(a.Scheduled), 1); err != nil {
		panic(err)
	}
	bs.fires[id.Name]++
	if len(bs.fires)%1000 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		bs.heap = max(bs.heap, m.HeapAlloc)
	}
	if len(bs.fires) == bs.want {
		close(bs.all)
	}
}

// checkOnce returns an error unless each alarm fired once.
func (bs *alarmTimes) checkOnce() error {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if len(bs.fires) != bs.want {
		return fmt.Errorf("%d of %d alarms were delivered", len(bs.fires), bs.want)
	}
	for name, n := range bs.fires {
		if n != 1 {
			return fmt.Errorf("the alarm of %s was delivered %d times", name, n)
		}
	}
	return nil
}

// wait waits until all fired.
func (bs *alarmTimes) wait(ctx context.Context, within time.Duration) error {
	select {
	case <-bs.all:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(within):
	}
	return bs.checkOnce()
}

// armAll sets the alarms of n objects, and evicts the objects.
func armAll(ctx context.Context, b *bench, h *host, n int, at func(i int) time.Time) error {
	err := fillBy(b, 0, n, func(i int) error {
		_, err := dohost.Call(ctx, subjects.Get(h, name(i)), (*subject).arm, at(i))
		return err
	})
	h.evictAll(n)
	return err
}

func spreadAlarms(ctx context.Context, b *bench) error {
	const n = 5000
	bs := newAlarmTimes(n)
	h, err := b.open(dohost.Options{}, bs.fired)
	if err != nil {
		return err
	}
	defer h.Close()
	begin := time.Now().Add(3 * time.Second) // by then they are set
	draw := rand.New(rand.NewPCG(b.seed, 0))
	due := make([]time.Time, n)
	for i := range due {
		due[i] = begin.Add(time.Duration(draw.Int64N(int64(3 * time.Second))))
	}
	if err := armAll(ctx, b, h, n, func(i int) time.Time { return due[i] }); err != nil {
		return err
	}
	if late := time.Since(begin); late > 0 {
		return fmt.Errorf("it took %v too long to set the alarms", late)
	}
	b.progress("waiting for %d alarms", n)
	if err := bs.wait(ctx, time.Minute); err != nil {
		return err
	}
	rate := n / bs.last.Sub(bs.first).Seconds()
	b.add(Row{
		ID: "P9", What: "5,000 alarms over 3 s, all objects evicted: lateness", Unit: "alarms/s",
		Sides: []Figure{{
			Side: ours, Value: rate, Rounds: []float64{rate}, Checked: n,
			P50: time.Duration(bs.hist.ValueAtQuantile(50)), P99: time.Duration(bs.hist.ValueAtQuantile(99)),
		}},
		Target: Target{Text: "p50 ≤ 2 ms, p99 ≤ 25 ms", P50: 2 * time.Millisecond, P99: 25 * time.Millisecond},
		Notes:  []string{"to the handler's first line"},
	})
	return nil
}

func instantAlarms(ctx context.Context, b *bench) error {
	n := min(b.objects, 100_000)
	bs := newAlarmTimes(n)
	h, err := b.open(dohost.Options{}, bs.fired)
	if err != nil {
		return err
	}
	defer h.Close()
	due := time.Now().Add(3*time.Second + time.Duration(n)*40*time.Microsecond)
	if err := armAll(ctx, b, h, n, func(int) time.Time { return due }); err != nil {
		return err
	}
	if late := time.Since(due); late > 0 {
		return fmt.Errorf("it took %v too long to set the alarms", late)
	}
	heap, _ := heapAfterGC()
	b.progress("waiting for %d alarms", n)
	if err := bs.wait(ctx, 5*time.Minute); err != nil {
		return err
	}
	rate := float64(n) / bs.last.Sub(due).Seconds()
	b.add(Row{
		ID: "P10", What: fmt.Sprintf("%d alarms due at one instant, all objects evicted", n), Unit: "alarms/s",
		Sides:  []Figure{{Side: ours, Value: rate, Rounds: []float64{rate}, Checked: int64(n)}},
		Target: Target{Text: "≥ 30,000/s, the first within 20 ms", MinValue: 30_000},
		Notes: []string{
			fmt.Sprintf("the first %v after they were due", bs.first.Sub(due).Round(10*time.Microsecond)),
			fmt.Sprintf("heap %.0f MiB before, %.0f MiB at most", heap/(1<<20), float64(bs.heap)/(1<<20)),
		},
	})
	return nil
}
