package randagent

import (
	"sync"

	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.Report

	// fault, if set, reports whether the model is wrong about an instruction: for tests of the shrinking.
	fault func(incarnation int, in Instr) bool

	mu           sync.Mutex
	incarnations int
	acknowledged int            // the newest version of the model that something outside depends on
	active       map[string]int // the incarnation of the call of each fiber and callback that runs
	attempts     map[string]int // of fibers and hooks: the last that is known to be counted
	tries        map[string]int // of instructions that fail
	hooks        map[string]int // calls of OnFiberEnded
	connections  []*connection  // in the order of their requests
	children     map[string]*childModel
	ends         int // of incarnations, by more than an eviction
}

// NewObserver returns an Observer.
func NewObserver() *Observer {
	w := new(Observer)
	w.Reset()
	return w
}

// Reset begins a new run.
func (w *Observer) Reset() {
	w.Clear()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incarnations, w.acknowledged, w.connections, w.ends, w.children = 0, 0, nil, 0, map[string]*childModel{}
	w.active, w.attempts, w.tries, w.hooks = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
}

// wake begins an incarnation that has found a version of the model, and returns its number.
func (w *Observer) wake(serial int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incarnations++
	if serial < w.acknowledged {
		w.Faultf("incarnation %d finds version %d of the model, and %d was acknowledged", w.incarnations, serial, w.acknowledged)
	}
	return w.incarnations
}

// acknowledge records that something outside depends on a version of the model.
func (w *Observer) acknowledge(serial int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acknowledged = max(w.acknowledged, serial)
}

// enter begins a call of a fiber or a callback. An incarnation runs each only once at a time.
func (w *Observer) enter(name string, incarnation int) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active[name] == incarnation {
		w.Faultf("%s runs twice in incarnation %d", name, incarnation)
	}
	if incarnation == w.incarnations {
		w.active[name] = incarnation
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.active[name] == incarnation {
			delete(w.active, name)
		}
	}
}

// attempt checks that a call has a higher attempt than those that were counted.
func (w *Observer) attempt(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.attempts[name]; ok && n <= last {
		w.Faultf("%s is called with attempt %d after %d", name, n, last)
	}
}

// counted records that an attempt is durable.
func (w *Observer) counted(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.attempts[name]; !ok || n > last {
		w.attempts[name] = n
	}
}

// try counts the tries of an instruction that fails.
func (w *Observer) try(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[name]++
	return w.tries[name]
}

// hook counts a call of OnFiberEnded for the end of a fiber.
func (w *Observer) hook(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hooks[name]++
	return w.hooks[name]
}

func (w *Observer) hooksOf(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hooks[name]
}

// forget forgets the attempts of a hook, whose count begins again.
func (w *Observer) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, name)
}
