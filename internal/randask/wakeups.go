package randask

import (
	"time"

	"github.com/dohost/dohost/inbox"
)

// wakeTime is the time within which a caller continues after the responses to its questions. Without a wake-up it looks for them after 5 minutes.
const wakeTime = 4 * time.Minute

// checkWakeUps checks that a response wakes the cycle that waits for it.
func (h *history) checkWakeUps() {
	for _, q := range h.w.questions {
		if q.by == nil || h.w.retried[q.by.object] || h.mayBeBusy(q.by.object, q.by.agent) {
			continue
		}
		answered, ok := h.stepAnswered(q)
		if !ok {
			continue
		}
		h.w.Compared()
		if seen, ok := h.firstSight(q); ok && seen.Sub(answered) > wakeTime {
			h.w.Faultf("the task %s continues at %s, and its question %s was answered at %s", q.by.Name, clock(seen), q.Name, clock(answered))
		}
	}
}

// mayBeBusy reports whether the cycles of an agent may wait for minutes: for a silent model, or for the budget of another day.
func (h *history) mayBeBusy(object, agent string) bool {
	if agent == "scout" {
		return true
	}
	for _, q := range h.w.questions {
		if q.object == object && q.agent == agent && (q.Silent || q.Fails != failNot) {
			return true
		}
	}
	return false
}

// stepAnswered returns the time of the last response to the questions of a step. It returns false unless each has one message and a response.
func (h *history) stepAnswered(q *question) (at time.Time, ok bool) {
	for _, c := range q.by.Asks[q.step] {
		r := h.onlyReply(c.Object, c.Task.Name)
		if r == nil {
			return time.Time{}, false
		}
		if r.Created.After(at) {
			at = r.Created
		}
	}
	return at, true
}

// onlyReply returns the response to the only message of a task in an object.
func (h *history) onlyReply(object, task string) (r *inbox.Message) {
	for _, msg := range h.messages {
		if msg.object != object || nameOf(&msg.first) != task {
			continue
		}
		if r != nil || !msg.deleted.IsZero() {
			return nil
		}
		if r = h.replyTo(object, &msg.last); r == nil {
			return nil
		}
	}
	return r
}

// firstSight returns when the caller's model, or its response, first has the result of a question.
func (h *history) firstSight(q *question) (at time.Time, ok bool) {
	add := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, s := range h.w.seen {
		if s.by == q.by.Name && s.Name == q.Name {
			add(s.at)
		}
	}
	for _, r := range h.replies[q.by.object] {
		if nameOfReply(r) == q.by.Name {
			add(r.Created)
		}
	}
	return at, ok
}
