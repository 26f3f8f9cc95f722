package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// slowTime is longer than a node waits for a log that no node has.
const slowTime = 10 * time.Minute

// isGivenBack reports whether a node has given back a cell.
func (w *simulation) isGivenBack() bool {
	for _, c := range w.table.now().Plan.Cells {
		if c.Avoid != "" {
			return true
		}
	}
	return false
}

// awaitQuietly waits until a condition is true. No node may give back a cell until then.
func (w *simulation) awaitQuietly(limit time.Duration, name string, done func() bool) {
	w.t.Helper()
	w.await(limit, name, func() bool {
		if w.isGivenBack() {
			w.t.Errorf("%s: a node has given back a cell: %v", name, w.table.now().Plan)
			return true
		}
		return done()
	})
}

// TestHostThatIsSlowKeepsItsCell has a host that is opened for longer than nodes wait for a log.
func TestHostThatIsSlowKeepsItsCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.hostTime = slowTime
		w.join()
		w.awaitQuietly(slowTime+time.Minute, "opening", func() bool { return w.owners() == 0 })
		w.endAll()
	})
}

// TestMoveThatIsSlow moves a cell whose host is closed for longer than nodes wait for a log.
func TestMoveThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.join()
		w.await(time.Minute, "opening", func() bool { return w.owners() == 0 })
		w.hostTime = slowTime
		w.join()
		to := w.processes[1]
		w.awaitQuietly(2*slowTime+time.Minute, "moving", func() bool { return len(to.serves()) > 0 })
		w.endAll()
	})
}

// serves returns the cells that the process serves.
func (p *simProcess) serves() (list []int) {
	for cell := range *simCells {
		if p.node.Host(cell) != nil {
			list = append(list, cell)
		}
	}
	return list
}

// endAll closes all nodes.
func (w *simulation) endAll() {
	for _, p := range w.processes {
		p.leave()
		if err := p.node.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
	w.ending.Wait()
}
