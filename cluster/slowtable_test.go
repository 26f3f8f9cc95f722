package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// slowTable is a table whose reads take long. It measures the longest time from one renewal to the next.
type slowTable struct {
	tableOf
	times   []time.Duration // of the reads, in turn
	reads   int
	renewed time.Time
	gap     time.Duration
}

func (s *slowTable) Read(ctx context.Context) (Snapshot, error) {
	s.reads++
	sleep(ctx, s.times[s.reads%len(s.times)])
	return s.tableOf.Read(ctx)
}

func (s *slowTable) Renew(ctx context.Context, m Member) error {
	if !s.renewed.IsZero() {
		s.gap = max(s.gap, time.Since(s.renewed))
	}
	s.renewed = time.Now()
	return s.tableOf.Renew(ctx, m)
}

// TestRenewalsDoNotWaitForReads has reads that end when a renewal is due, or just before that, so that the next read begins then.
func TestRenewalsDoNotWaitForReads(t *testing.T) {
	due, early := *simTTL/renewals, *simTTL/renewals-time.Millisecond
	for _, times := range [][]time.Duration{
		{0}, {time.Second / 10}, {*simTTL/ticks - time.Millisecond}, {early}, {due}, {early, 0, 0}, {time.Hour, early, 0}, {time.Hour},
	} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSimulation(t, 1)
				p := &simProcess{simulation: w, joined: time.Now()}
				table := &slowTable{tableOf: tableOf{w.table, p}, times: times}
				n, err := Start(t.Context(), &Options{
					Table: table, TTL: *simTTL, Cells: *simCells, Advertise: "http://node", Secret: []byte(testSecret), Open: p.open,
					Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return logOf{w.logs[cell], p}, nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				p.node = n
				time.Sleep(100 * *simTTL)
				serves := len(p.serves())
				if err := n.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if table.gap > *simTTL/2 {
					t.Errorf("a renewal was sent %v after the one before", table.gap)
				}
				if never := times[0] == time.Hour && len(times) == 1; serves == *simCells == never {
					t.Errorf("the node serves %d cells", serves)
				}
			})
		})
	}
}
