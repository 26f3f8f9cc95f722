package main

import (
	"errors"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/tally"
)

// listener counts what the host does.
func (w *worker) listener() dohost.Listener {
	return dohost.Listener{
		Waking: func(dohost.ID, dohost.Epoch) { w.count(func(a *account) { a.Wakes++ }) },
		Fenced: func(e dohost.Ended) {
			w.count(func(a *account) {
				a.Causes[string(e.Why.Reason)]++
				if e.Why.Place != "" {
					a.Places[e.Why.Place]++
				}
			})
		},
		Refused:    func(dohost.ID, dohost.Epoch) { w.count(func(a *account) { a.Refused++ }) },
		AlarmEnded: w.alarmEnded,
	}
}

// alarmEnded counts a run, and whether it repeats one that did not succeed.
func (w *worker) alarmEnded(al dohost.AlarmRun) {
	w.count(func(a *account) {
		a.Alarms++
		if al.ID.Class != string(tally.Documents) {
			return
		}
		if w.running[al.ID.Name] {
			a.Again++
		}
		w.running[al.ID.Name] = al.Err != nil
		if al.Err != nil {
			a.Failed++
		}
		if al.Err != nil && !errors.Is(al.Err, dohost.ErrFenced) {
			w.trouble = &trouble{Full: errors.Is(al.Err, dohost.ErrNoSpace), Err: al.Err.Error()}
		}
	})
}

func (w *worker) count(f func(*account)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.account)
}

// step is called when a step is durable.
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

func (w *worker) seen() { w.count(func(a *account) { a.Duplicate++ }) }

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

// send writes a report. If nobody reads any more there is nobody to tell.
func (w *worker) send(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r)
}
