package main

import (
	"errors"
	"log/slog"

	"github.com/dohost/dohost"
)

// listener counts the host's events.
func (w *worker) listener() dohost.Listener {
	return dohost.Listener{
		Waking: func(dohost.ID, dohost.Epoch) { w.count(func(a *account) { a.Wakes++ }) },
		Fenced: func(e dohost.Ended) {
			w.count(func(a *account) {
				a.Causes[string(e.Cause.Reason)]++
				if e.Cause.Place != "" {
					a.Places[e.Cause.Place]++
				}
			})
		},
		Refused:    func(dohost.ID, dohost.Epoch) { w.count(func(a *account) { a.Refused++ }) },
		AlarmEnded: w.alarmEnded,
		Service:    w.service,
	}
}

// alarmEnded counts a run.
func (w *worker) alarmEnded(al dohost.AlarmRun) {
	w.count(func(a *account) {
		a.Alarms++
		if al.Err != nil {
			a.Failed++
		}
		w.setTroubleLocked(al.Err)
	})
}

// service counts the agents' events.
func (w *worker) service(_ dohost.ID, event string, attrs ...slog.Attr) {
	w.count(func(a *account) {
		switch event {
		case "fiber:interrupted":
			a.Recoveries++
		case "fiber:ended":
			a.Fibers++
		case "fiber:retry", "fiber:waiting":
			for _, attr := range attrs {
				if err, ok := attr.Value.Any().(error); ok {
					w.setTroubleLocked(err)
				}
			}
		}
	})
}

// setTroubleLocked records the reason of a failed step.
func (w *worker) setTroubleLocked(err error) {
	if err != nil && !errors.Is(err, dohost.ErrFenced) {
		w.trouble = &trouble{Full: errors.Is(err, dohost.ErrNoSpace), Err: err.Error()}
	}
}

func (w *worker) count(f func(*account)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.account)
}

// step counts a durable step.
func (w *worker) step(bytes int) {
	w.mu.Lock()
	first := !w.stepped
	w.stepped = true
	w.trouble = nil
	w.account.Steps++
	w.account.Bytes += int64(bytes)
	w.mu.Unlock()
	if first {
		close(w.first)
	}
}

// read counts the bytes that a step has read.
func (w *worker) read(bytes int) {
	w.count(func(a *account) {
		a.Reads++
		a.ReadBytes += int64(bytes)
	})
}

func (w *worker) countDuplicate() { w.count(func(a *account) { a.Duplicate++ }) }

func (w *worker) finished() {
	select {
	case w.done <- struct{}{}:
	default:
	}
}

func (w *worker) sendAccount() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(report{Account: &w.account, Trouble: w.trouble})
}

// send writes a report. It ignores the error: the parent may no longer read.
func (w *worker) send(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r)
}
