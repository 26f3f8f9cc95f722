package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
)

// TestCellIsGivenBackAfterARefusedOpen has a node that loses the logs while it opens a host, and cannot open it: it cannot release the log.
func TestCellIsGivenBackAfterARefusedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.hostTime = time.Millisecond
		w.join()
		w.await(time.Minute, "opening", func() bool { return w.owners() == 0 })
		other := w.processes[0]
		p := &simProcess{simulation: w, joined: time.Now()}
		var refused atomic.Bool
		n, err := Start(t.Context(), &Options{
			Table: tableOf{w.table, p}, TTL: *simTTL, Cells: *simCells, Advertise: "http://node", Secret: []byte(testSecret),
			Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return logOf{w.logs[cell], p}, nil },
			Open: func(int, sharedlog.Lease, dohost.Remote) (Host, error) {
				refused.Store(true)
				p.cut(toLogs)
				return nil, errors.New("the directory cannot be read")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.await(time.Minute, "the refusal", func() bool { return refused.Load() })
		w.await(time.Hour, "the other node", func() bool { return len(other.serves()) == *simCells })
		p.endFailures()
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
		w.endAll()
	})
}
