package natslog

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/examples/counter"
)

// BenchmarkAppend appends records of 6.4 kB, one after the other.
func BenchmarkAppend(b *testing.B) {
	for n, o := range map[int]Options{1: single, 3: {}} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			lease := acquire(b, open(b, natstest.Start(b, n, "always"), "main", o))
			record := bytes.Repeat([]byte("x"), 6400)
			number := uint64(0)
			for b.Loop() {
				number++
				if err := lease.Append(b.Context(), number, record); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkIncrements makes durable increments of objects in hosts with logs on three servers. All cells are in this process.
func BenchmarkIncrements(b *testing.B) {
	for _, c := range []struct{ objects, cells, callers int }{{1, 1, 1}, {1, 1, 256}, {16, 8, 256}} {
		b.Run(fmt.Sprintf("objects=%d/cells=%d/callers=%d", c.objects, c.cells, c.callers), func(b *testing.B) {
			hosts := openHosts(b, c.cells)
			call := func(i, delta int) (int, error) {
				return dohost.Call(b.Context(), counter.Counters.Get(hosts[i%c.cells], fmt.Sprint(i)), (*counter.Counter).Add, delta)
			}
			for i := range c.objects {
				if _, err := call(i, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			took := together(b, c.callers, func(n int) error {
				_, err := call(n%c.objects, 1)
				return err
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "increments/s")
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
			sum := 0
			for i := range c.objects {
				n, err := call(i, 0)
				if err != nil {
					b.Fatal(err)
				}
				sum += n
			}
			if sum != b.N {
				b.Errorf("the objects have counted %d of %d increments", sum, b.N)
			}
		})
	}
}

// openHosts opens one host for each cell.
func openHosts(b *testing.B, cells int) (hosts []*dohost.Host) {
	servers := natstest.Start(b, 3, "always")
	for i := range cells {
		lease := acquire(b, open(b, servers, fmt.Sprintf("cell%d", i), Options{}))
		h, err := dohost.Open(b.TempDir(), &dohost.Options{Lease: lease}, counter.Class())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		})
		hosts = append(hosts, h)
	}
	return hosts
}

// together calls fn b.N times with the numbers from 0, by concurrent callers, and returns the times of the calls in order.
func together(b *testing.B, callers int, fn func(n int) error) (took []time.Duration) {
	took = make([]time.Duration, b.N)
	var next atomic.Int64
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < b.N && ctx.Err() == nil; n = int(next.Add(1)) - 1 {
				began := time.Now()
				if err := fn(n); err != nil {
					cancel(err)
					return
				}
				took[n] = time.Since(began)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	return took
}
