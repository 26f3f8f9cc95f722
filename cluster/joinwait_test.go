package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// startingTable fails the first reads, as while its servers start.
type startingTable struct {
	tableOf
	err   error
	fails int // reads
}

func (s *startingTable) Read(ctx context.Context) (Snapshot, error) {
	if s.fails > 0 {
		s.fails--
		return Snapshot{}, s.err
	}
	return s.tableOf.Read(ctx)
}

// TestStartWaitsForTheTable has a table that is unavailable at first, and one with another error.
func TestStartWaitsForTheTable(t *testing.T) {
	other := errors.New("another error")
	for _, failure := range []error{fmt.Errorf("table: %w", sharedlog.ErrUnavailable), other} {
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, 1)
			p := &simProcess{simulation: w, joined: time.Now()}
			n, err := Start(t.Context(), &Options{
				Table: &startingTable{tableOf{w.table, p}, failure, 100}, TTL: *simTTL, Cells: *simCells, Advertise: "http://node", Secret: []byte(testSecret), Open: p.open,
				Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return logOf{w.logs[cell], p}, nil },
			})
			if errors.Is(failure, sharedlog.ErrUnavailable) != (err == nil) {
				t.Errorf("%v: %v", failure, err)
			}
			if err == nil {
				p.node = n
				if err := n.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
