package dohosttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/runtime"
)

// Host is a host in virtual time, on a file system in memory. It represents a sequence of
// processes: a stub of [dohost.Namespace.Get] reaches the present process, and a call
// between two processes waits. Its methods may be called from any goroutine of the test,
// but not from an object's code. After the end of the run they panic.
type Host struct {
	locator // of the present host
	run     *scenarioRun
}

// locator is a dohost.Locator as an unexported field.
type locator = dohost.Locator

func newHost(w *scenarioRun) *Host { return &Host{dohost.NewLocator(w.locateHost), w} }

// locateHost returns the present host. In random runs with a shared log it returns a former owner from time to time: a client may
// learn late of a take-over.
func (w *scenarioRun) locateHost() *dohost.Host {
	present := w.presentHost()
	if former := w.misroute(); former != nil {
		return former
	}
	return present
}

// Host returns the present [dohost.Host], to export, import, list or serve HTTP with.
func (h *Host) Host() *dohost.Host {
	return h.run.presentHost()
}

func (w *scenarioRun) presentHost() *dohost.Host {
	w.panicIfOver()
	return w.current.wait().host
}

// Evict ends the object's incarnation, and reports whether there was one.
func (h *Host) Evict(id dohost.ID, s dohost.EndMode) (had bool) {
	h.run.atStandstill(func() {
		h.run.log.addText(id, "evicted by the test")
		h.run.disturbed = true
		had = h.run.current.proc.host.Evict(id, s)
	})
	return had
}

// EvictAll ends every incarnation, by a fence: the next incarnations know the committed
// writes, and nothing else.
func (h *Host) EvictAll() {
	h.run.atStandstill(func() {
		var ids []dohost.ID
		for info := range h.run.current.proc.host.Live() {
			ids = append(ids, info.ID)
		}
		slices.SortFunc(ids, compareIDs)
		for _, id := range ids {
			h.run.current.proc.host.Evict(id, dohost.EndFence)
		}
	})
}

// Crash ends the process at its present step, by a power cut: unsynced writes are lost, and
// the next process starts with the rest. Callers get [dohost.ErrFenced] or
// [dohost.ErrClosed].
func (h *Host) Crash() { h.end(eviction.EndPowerCut, 0) }

// Kill ends the process as SIGKILL does: the next one starts with all writes, synced or
// not. Callers get the same errors as from Crash.
func (h *Host) Kill() { h.end(eviction.EndKill, 0) }

// EndFor is Crash or Kill, with a pause before the next process: the mode is [dohost.EndPowerCut] or [dohost.EndKill].
func (h *Host) EndFor(e dohost.EndMode, pause time.Duration) { h.end(e, pause) }

func (h *Host) end(e dohost.EndMode, pause time.Duration) {
	h.run.atStandstill(func() {
		h.run.log.addText(dohost.ID{}, "%v by the test", e)
		h.run.disturbed = true
		h.run.endFor(e == eviction.EndKill, pause)
	})
}

// Restart closes the process in good order and starts the next one with the given classes,
// as a newer version of the program would; without classes, it keeps the present ones.
// After a failed sync the next process starts with the synced writes, on a disk that works.
// It returns the error of [dohost.Host.Close].
func (h *Host) Restart(classes ...dohost.Class) error {
	var old *process
	h.run.atStandstill(func() {
		old = h.run.current.remove()
		if len(classes) > 0 { // also if a kill interrupts the closing
			h.run.classes = classes
		}
		h.run.log.addText(dohost.ID{}, "restart by the test")
		h.run.disturbed = true
	})
	err := old.host.Close()
	h.run.atStandstill(func() {
		if h.run.current.proc != old {
			return // a kill or a crash has ended it
		}
		old.ended = true
		close(old.gone)
		h.run.pastProcesses = append(h.run.pastProcesses, old)
		fs := old.fs
		if old.host.Err() != nil {
			fs = fs.Crash(0, 1)
		}
		h.run.startNext(fs, old)
	})
	return err
}

// FailSync makes the disk of this process fail with err, from the next sync on. The failed
// store ends the process; call Restart for the next one.
func (h *Host) FailSync(err error) {
	h.run.atStandstill(func() {
		h.run.current.proc.fs.FailSyncs(err)
		h.run.disturbed = true
	})
}

// Advance lets time pass, and with it all timers that are due.
func (h *Host) Advance(d time.Duration) {
	time.Sleep(d)
	h.run.atStandstill(func() {}) // other goroutines may have woken at the same moment
}

// maxIdleWait is the default limit of [Host.WaitIdle].
const maxIdleWait = 24 * time.Hour

// WaitIdle lets time pass until the host is idle: no event queued, running or suspended, no
// alarm set, nothing undurable. After within, or after a day if within is zero, it returns
// an error that lists the remaining work.
func (h *Host) WaitIdle(within time.Duration) error {
	if within == 0 {
		within = maxIdleWait
	}
	until := time.Now().Add(within)
	wait := time.Millisecond
	for {
		time.Sleep(wait)
		if err := context.Cause(h.run.ctx); err != nil {
			return err
		}
		now := kernel.OfHost(h.Host()).Work()
		if now.Events == 0 && now.Undurable == 0 && now.Alarms == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("dohosttest: the host is not idle after %v: %s", within, h.busy(now))
		}
		wait = min(2*wait, time.Second)
		if now.Events == 0 && now.Undurable == 0 {
			wait = min(max(time.Until(now.Next), time.Millisecond), time.Until(until)+time.Millisecond)
		}
	}
}

// busy lists the remaining work.
func (h *Host) busy(now runtime.Work) string {
	var what []string
	if now.Alarms > 0 {
		what = append(what, fmt.Sprintf("%d alarms are set, the next for %v from now", now.Alarms, time.Until(now.Next).Round(time.Millisecond)))
	}
	if now.Events > 0 {
		what = append(what, fmt.Sprintf("%d events have not ended", now.Events))
	}
	for info := range h.Host().Live() {
		for _, pin := range info.Pins {
			what = append(what, fmt.Sprintf("%v: %s for %v", info.ID, pin.Reason, pin.For.Round(time.Millisecond)))
		}
	}
	return strings.Join(what, "; ")
}

// Log returns the points, incarnations, alarms and errors so far.
func (h *Host) Log() string { return h.run.log.String() }

// pause lets other clients that wake at the same moment start in their order.
func (w *scenarioRun) pause(ctx context.Context) {
	w.sched.ask(&stepRequest{do: func() {}, client: clientOf(ctx)})
}

// atStandstill calls f at a standstill.
func (w *scenarioRun) atStandstill(f func()) {
	w.panicIfOver()
	w.sched.ask(&stepRequest{do: f, client: w.clients.current()})
}

// panicIfOver panics if the run is over. Its channels belong to a bubble that has ended, and
// would end the test's process.
func (w *scenarioRun) panicIfOver() {
	if w.over.Load() {
		panic("dohosttest: the run of this Host is over; use the Host that the function gets")
	}
}
