package dohosttest

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// linger is the delay before the former owner notices a take-over. Its code runs until then.
const linger = 2 * time.Second

// noticeTime bounds the time until a former owner notices a take-over. No process makes a step during the downtime of another one, and
// that may begin immediately after the take-over.
const noticeTime = maxDowntime + time.Minute

// baseAfter is the bytes of records that follow a base: a few records. In a random run it is drawn.
const baseAfter = 1000

// share gives the run a shared log, if it has one. In a random run a tenth of the appends, of the bases and of the purges fail, or their
// answers are lost.
func (w *scenarioRun) share(shared bool) {
	if !shared {
		return
	}
	w.shared = &logtest.Log{Linger: linger, Unchecked: true}
	after := int64(baseAfter)
	if w.order.drawn {
		after = 1 + int64(hashOf(w.order.seed, "bases")%(4*baseAfter))
	}
	if w.options.BaseAfter == 0 {
		w.options.BaseAfter = after
	}
	if !w.order.drawn {
		return
	}
	faults := []logtest.Fault{logtest.FaultUnavailable, logtest.FaultLost, logtest.FaultLostAnswer}
	fault := func(step any) logtest.Fault {
		if n := hashOf(w.order.seed, step); n%10 == 0 {
			return faults[n/10%3]
		}
		return logtest.FaultNone
	}
	w.shared.OnAppend = func(a logtest.Append) logtest.Fault { return fault(a) }
	w.shared.OnBase = func(b logtest.BaseStep) logtest.Fault { return fault(b) }
}

// TakeOver starts the next process, which acquires the shared log, while the code of the present one runs on: see
// [Scenario].SharedLog. It panics without a shared log.
func (h *Host) TakeOver() {
	h.wantSharedLog("TakeOver")
	h.run.atStandstill(func() {
		h.run.log.addText(dohost.ID{}, "take-over by the test")
		h.run.disturbed = true
		h.run.takeOver()
	})
}

// ExpireLease ends the lease of the present process, although no other process has acquired the log: the host notices it within two
// seconds, and fails. Call Restart for the next process. It panics without a shared log.
func (h *Host) ExpireLease() {
	h.wantSharedLog("ExpireLease")
	h.run.atStandstill(func() {
		h.run.shared.Expire()
		h.run.disturbed = true
	})
}

func (h *Host) wantSharedLog(method string) {
	if h.run.shared == nil {
		panic("dohosttest: Host." + method + " needs the option SharedLog")
	}
}

// stepLease is the lease of a process. An append is a step, like a sync of the disk, and so are the publishing of a base and a purge.
type stepLease struct {
	sharedlog.Lease
	run    *scenarioRun
	proc   *process
	opened atomic.Bool // the process may stop: opening happens at a standstill
}

// acquire returns the lease of a process that starts, or nil if there is no shared log.
func (w *scenarioRun) acquire(p *process) (*stepLease, error) {
	if w.shared == nil {
		return nil, nil
	}
	lease, err := w.shared.Acquire(w.ctx)
	if err != nil {
		return nil, err
	}
	return &stepLease{Lease: lease, run: w, proc: p}, nil
}

// Append implements [sharedlog.Lease].
func (l *stepLease) Append(ctx context.Context, number uint64, record []byte) error {
	if l.opened.Load() {
		l.step(fsync)
	}
	return l.Lease.Append(ctx, number, record)
}

// WriteBase implements [sharedlog.Lease]. The bytes of the base are written before its step.
func (l *stepLease) WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error {
	return l.Lease.WriteBase(ctx, number, func(to io.Writer) error {
		err := write(to)
		l.step("base")
		return err
	})
}

// Purge implements [sharedlog.Lease].
func (l *stepLease) Purge(ctx context.Context, before uint64) error {
	l.step("purge")
	return l.Lease.Purge(ctx, before)
}

func (l *stepLease) step(op string) {
	l.run.sched.ask(&stepRequest{proc: l.proc, point: runtime.Point{Place: eviction.PlaceRecord, Op: op}})
}

// misroute returns the host of the former owner for some calls of each client in a random run, until it has noticed the take-over.
func (w *scenarioRun) misroute() *dohost.Host {
	former := w.formerOwner.Load()
	if former == nil || !w.order.drawn || w.checking.Load() {
		return nil
	}
	select {
	case <-former.host.Failed():
		return nil
	default:
	}
	if client, n := w.clients.countCall(); hashOf(w.order.seed, client, n)%3 > 0 {
		return nil
	}
	return former.host
}

// takeOver starts the next process while the present one runs, at a standstill. The next one has the directory of the process that
// was taken over before, as it is now, or an empty one: both lack records.
func (w *scenarioRun) takeOver() {
	old := w.current.remove()
	fs := objectstore.NewMemFS()
	if former := w.formerOwner.Load(); former != nil {
		fs = former.fs.Crash(100, 1)
	}
	old.fenced = true
	old.dying.Store(true)
	w.formerOwner.Store(old)
	w.pastProcesses = append(w.pastProcesses, old)
	w.startNext(fs, old)
	go func() {
		defer close(old.gone)
		select {
		case <-old.host.Failed():
		case <-time.After(noticeTime):
			old.unaware = true
		}
		_ = old.host.Close() // it returns the fence
	}()
}
