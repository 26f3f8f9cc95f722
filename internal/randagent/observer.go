package randagent

import (
	"sync"

	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.StoredReport

	// Fault, if set, reports whether the model is wrong about an instruction: for tests of the shrinking.
	Fault func(incarnation int, in Instr) bool

	mu          sync.Mutex
	active      map[string]int // the incarnation of the call of each fiber and callback that runs
	attempts    map[string]int // of fibers and hooks: the last that is known to be counted
	hooks       map[string]int // calls of OnFiberEnded
	connections []*connection  // in the order of their requests
	children    map[string]*childModel
	ends        int // of incarnations, by more than an eviction
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
	w.connections, w.ends, w.children = nil, 0, map[string]*childModel{}
	w.active, w.attempts, w.hooks = map[string]int{}, map[string]int{}, map[string]int{}
}

// enter begins a call of a fiber or a callback. An incarnation runs each only once at a time.
func (w *Observer) enter(name string, incarnation int) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active[name] == incarnation {
		w.Faultf("%s runs twice in incarnation %d", name, incarnation)
	}
	if incarnation == w.Incarnations() {
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
