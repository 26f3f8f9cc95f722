package natslog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
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
