package randinbox

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.StoredReport

	mu       sync.Mutex
	answers  map[string][]answer // of the model, by the position and the messages of a cycle
	stamps   map[string]string   // the keys of effects, by task and position
	parked   map[string]bool     // ids of rows that were reported as parked
	moments  map[dohost.Position]moment
	newest   dohost.Position // of the feed, durable or not
	watchers []*watcher
}

// moment is the content of the messages at a position of their feed.
type moment struct {
	serial int // of the model
	rows   map[string]inbox.Message
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
	w.answers, w.stamps, w.parked = map[string][]answer{}, map[string]string{}, map[string]bool{}
	w.moments, w.newest, w.watchers = map[dohost.Position]moment{{}: {}}, dohost.Position{}, newWatchers()
}

// fails reports whether a task fails at a place this time.
func (w *Observer) fails(t task, at failure) bool {
	return t.Fails == at && t.Times > 0 && w.Try(fmt.Sprint("task ", t.Number)) <= t.Times
}

// answer is a text of the model for a cycle.
type answer struct {
	incarnation int
	text        string
}

// answered records that the model has answered the messages of a cycle. An incarnation does not ask for them again, although the conversation
// before them has become longer.
func (w *Observer) answered(now *cycle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.answers[now.asked], func(a answer) bool { return a.incarnation == now.owner }) {
		w.Faultf("the model is asked again after its answer in incarnation %d to %s", now.owner, now.asked)
	}
	w.answers[now.asked] = append(w.answers[now.asked], answer{now.owner, "re " + now.prompt})
}

// texts returns the answers of the model for a cycle.
func (w *Observer) texts(now *cycle) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.answers[now.asked] {
		list = append(list, a.text)
	}
	return list
}

// stamped records a request with an effect outside, for a task at a position. A repeated request has the key of the first.
func (w *Observer) stamped(task, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first, ok := w.stamps[task]; ok && first != key {
		w.Faultf("the effect of task %s has the key %q, and before %q", task, key, first)
	}
	w.stamps[task] = key
}

// hasStamp reports whether a task has an effect.
func (w *Observer) hasStamp(task string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stamps[task] != ""
}

// Listener records the rows that the agent reports as parked.
func (w *Observer) Listener() dohost.Listener {
	return dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
		if event != "rows:parked" {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range attrs {
			if a.Key == "id" {
				w.parked[a.Value.String()] = true
			}
		}
	}}
}

func (w *Observer) reportedParked(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked[id]
}
