package randask

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// slack is the time within which a caller finds a response, or the end of a request, while its object and the asked one are interrupted.
const slack = 6 * time.Second

// check compares the history of all objects with the model.
func (h *history) check() {
	for _, msg := range h.messages {
		h.w.Compared()
		h.checkEnd(msg)
		if len(msg.first.Path) > 0 || strings.HasPrefix(msg.first.ID, "ask_") {
			h.checkQuestion(msg)
		}
	}
	for object, list := range h.replies {
		for _, r := range list {
			h.w.Compared()
			h.checkReply(object, r)
		}
	}
	for _, q := range h.w.questions {
		h.checkIDs(q)
	}
	for _, s := range h.w.seen {
		h.w.Compared()
		h.checkResult(s)
	}
	h.checkWakeUps()
	h.checkBudgets()
}

// checkBudgets checks that no scout is asked after the calls of its object have used up the budget of the day: those with a stored response
// count for certain.
func (h *history) checkBudgets() {
	for _, c := range h.w.calls {
		if c.agent != "scout" {
			continue
		}
		spent := map[string]bool{}
		for _, other := range h.w.calls {
			ended := func(r *inbox.Message) bool { return nameOfReply(r) == other.task && r.Created.Before(c.at) }
			if other.object == c.object && other.at.UTC().YearDay() == c.at.UTC().YearDay() && slices.ContainsFunc(h.replies[c.object], ended) {
				spent[fmt.Sprint(other.task, "/", other.step)] = true
			}
		}
		if len(spent)*callTokens >= dayTokens {
			h.w.Faultf("the scout of %s is asked at %s, after %d calls on that day: %v", c.object, clock(c.at), len(spent), spent)
		}
	}
}

func nameOfReply(r *inbox.Message) string {
	a, _ := parse[answer](r.Content)
	return a.Of
}

// checkEnd checks that a message has exactly one end: it was deleted, it has expired, its agent has responded, or it is parked.
func (h *history) checkEnd(msg *messageHistory) {
	m := &msg.last
	row, parked := h.parked[msg.object+"/"+m.ID]
	reply := h.replyTo(msg.object, m)
	switch {
	case !msg.deleted.IsZero() || m.To == "ghost":
		return
	case waits(m) && !parked:
		h.w.Faultf("at rest of %s the message %s is not answered", msg.object, text(m))
	case waits(m) && row.Attempt < attemptsOf(m.To):
		h.w.Faultf("%s of %s is parked after %d attempts", text(m), msg.object, row.Attempt)
	case waits(m):
		return
	case m.Expired:
		if m.Deadline.IsZero() || m.Processed.Before(m.Deadline) {
			h.w.Faultf("%s of %s has expired before its deadline", text(m), msg.object)
		}
		if m.Request == "" || reply != nil && !reply.Created.After(m.Processed) {
			h.w.Faultf("%s of %s has expired, although it has the reply %s", text(m), msg.object, optional(reply))
		}
		return
	case m.Request != "" && reply == nil:
		h.w.Faultf("%s of %s is processed, and has no reply", text(m), msg.object)
		return
	case m.Request != "" && !reply.Created.Equal(m.Processed):
		if reply.Created.After(m.Processed) {
			h.w.Faultf("%s of %s is processed before its reply %s", text(m), msg.object, text(reply))
		}
		return
	}
	batch, n := h.batch(msg, m.Processed), 0
	for _, r := range h.replies[msg.object] {
		if r.From == m.To && r.Created.Equal(m.Processed) && r.InReplyTo == m.Request {
			n++
			h.checkBatch(msg.object, batch, r)
		}
	}
	if n != 1 {
		h.w.Faultf("%s of %s has %d replies", text(m), msg.object, n)
	}
}

// batch returns the messages that were processed together with one.
func (h *history) batch(msg *messageHistory, at time.Time) (list []*inbox.Message) {
	for _, other := range h.messages {
		if m := &other.last; other.object == msg.object && m.To == msg.last.To && m.Request == msg.last.Request && m.Processed.Equal(at) {
			list = append(list, m)
		}
	}
	return list
}

// checkBatch compares the reply to a batch with the model.
func (h *history) checkBatch(object string, batch []*inbox.Message, r *inbox.Message) {
	to, latest, bounded := batch[0].From, time.Time{}, true
	for _, m := range batch {
		if m.From != to {
			to = ""
		}
		if bounded = bounded && !m.Deadline.IsZero() && m.Request != ""; m.Deadline.After(latest) {
			latest = m.Deadline
		}
	}
	if r.To != to || r.Request != "" || len(r.Path) > 0 || !r.Deadline.IsZero() || !r.Processed.Equal(r.Created) {
		h.w.Faultf("the reply %s of %s is to %d messages, one of them %s", text(r), object, len(batch), text(batch[0]))
	}
	if bounded && !r.Created.Before(latest) {
		h.w.Faultf("the reply %s of %s is later than the deadline of %s", text(r), object, text(batch[0]))
	}
	a, _ := parse[answer](r.Content)
	i := slices.IndexFunc(batch, func(m *inbox.Message) bool { return nameOf(m) == a.Of })
	if i < 0 {
		h.w.Faultf("the reply %s of %s is to none of %d messages, one of them %s", text(r), object, len(batch), text(batch[0]))
		return
	}
	var want, got []string
	for _, calls := range h.w.questions[a.Of].Asks {
		for _, c := range calls {
			want = append(want, c.Task.Name)
		}
	}
	for _, g := range a.Got {
		got = append(got, g.Name)
		h.checkResult(sight{a.Of, g, r.Created})
	}
	if !slices.Equal(got, want) {
		h.w.Faultf("the reply %s of %s has the results %q, want %q", text(r), object, got, want)
	}
}

// nameOf returns the name of the task of a message.
func nameOf(m *inbox.Message) string {
	t, _ := parse[task](m.Content)
	return t.Name
}

func optional(m *inbox.Message) string {
	if m == nil {
		return "none"
	}
	return text(m)
}

// checkReply checks that a reply is to a message, and the only one to a request.
func (h *history) checkReply(object string, r *inbox.Message) {
	if r.InReplyTo == "" {
		return // checkEnd
	}
	same := func(o *inbox.Message) bool { return o.InReplyTo == r.InReplyTo && o.From == r.From && o.To == r.To }
	n := 0
	for _, other := range h.replies[object] {
		if same(other) {
			n++
		}
	}
	asked := slices.ContainsFunc(h.messages, func(msg *messageHistory) bool {
		m := &msg.last
		return msg.object == object && m.Request == r.InReplyTo && m.To == r.From && m.From == r.To && m.Processed.Equal(r.Created) && !m.Expired
	})
	if n != 1 || !asked {
		h.w.Faultf("the reply %s of %s is one of %d, and its request is there: %t", text(r), object, n, asked)
	}
}

// checkQuestion compares a message of an agent tool with the model.
func (h *history) checkQuestion(msg *messageHistory) {
	m, q := &msg.first, h.w.questions[nameOf(&msg.first)]
	if q == nil || q.by == nil || encode(q.task) != m.Content {
		h.w.Faultf("%s asks %s in %s", m.From, text(m), msg.object)
		return
	}
	if q.object != msg.object || q.agent != m.To || q.by.agent != m.From || m.Role != chat.RoleUser || m.Request != m.ID || !slices.Equal(m.Path, q.path()) {
		h.w.Faultf("the question %s in %s has the path %v, want %s of %s to %s of %s by %v", text(m), msg.object, m.Path, q.by.agent, q.by.object, q.agent, q.object, q.path())
	}
	if begin, _ := q.refused(); begin != "" {
		h.w.Faultf("the question %s is asked, want %s", text(m), begin)
	}
	if q.agent == "envoy" {
		return
	}
	var ends []string
	for _, cycle := range h.w.deadlines[q.by.Name] {
		end := q.end(m.Created, cycle)
		if end.Equal(m.Deadline) {
			return
		}
		ends = append(ends, clock(end))
	}
	h.w.Faultf("the question %s has a deadline that is none of %q", text(m), ends)
}

// end returns the end of the time limit of a question of a given time, in a cycle with a deadline; zero if there is none.
func (q *question) end(created, cycle time.Time) time.Time {
	limit := tools[q.agent].timeout
	if limit == 0 {
		return cycle
	}
	if end := created.Add(limit); cycle.IsZero() || end.Before(cycle) {
		return end
	}
	return cycle
}

// checkIDs checks that each call of a tool is one request. A question has several requests only if a step has equal calls, or if several
// messages to the caller have its task.
func (h *history) checkIDs(q *question) {
	if q.by == nil {
		return
	}
	ids, own, ofCaller := map[string]bool{}, 0, 0
	for _, msg := range h.messages {
		switch nameOf(&msg.first) {
		case q.Name:
			own++
			ids[msg.object+"/"+msg.first.ID] = true
		case q.by.Name:
			ofCaller++
		}
	}
	if most := q.number * max(ofCaller, 1); len(ids) > most {
		h.w.Faultf("the question %s of %s in %s has the ids %v, want at most %d", q.Name, q.by.agent, q.by.object, ids, most)
	}
	if len(h.w.positions[q.Name]) > max(own, 1) {
		h.w.Faultf("the cycles of %s have the positions %v", q.Name, h.w.positions[q.Name])
	}
}

// checkResult compares the result of a call with the history of the asked object.
func (h *history) checkResult(s sight) {
	q := h.w.questions[s.Name]
	if q == nil || q.by == nil || q.by.Name != s.by {
		h.w.Faultf("the task %s has the result %+v", s.by, s.result)
		return
	}
	if begin, end := q.refused(); begin != "" {
		if !strings.HasPrefix(s.Text, begin) || !strings.HasSuffix(s.Text, end) {
			h.w.Faultf("the call %s of task %s has the result %q, want %s…%s", s.Name, s.by, s.Text, begin, end)
		}
		return
	}
	var why []string
	for _, msg := range h.messages {
		if msg.object != q.object || nameOf(&msg.first) != q.Name {
			continue
		}
		wrong := h.wrong(q, msg, s)
		if wrong == "" {
			return
		}
		why = append(why, fmt.Sprintf("%s: %s", text(&msg.last), wrong))
	}
	h.w.Faultf("the call %s of task %s has at %s the result %q, and there are %d messages: %s", s.Name, s.by, clock(s.at), s.Text, len(why), strings.Join(why, "; "))
}

// wrong returns why a result cannot be that of a message; empty if it can.
func (h *history) wrong(q *question, msg *messageHistory, s sight) string {
	m := &msg.first
	reply := h.replyTo(msg.object, m)
	if reply != nil && (reply.Created.Before(m.Created) || !msg.deleted.IsZero() && msg.last.Processed.IsZero()) {
		reply = nil // to another message with the same id
	}
	first, last := h.ends(q, m)
	inTime := reply != nil && (last.IsZero() || reply.Created.Before(last))
	surely := func(at time.Time) bool { return !at.IsZero() && (first.IsZero() || at.Add(slack).Before(first)) }
	parked, isParked := h.parked[msg.object+"/"+m.ID]
	switch late := fmt.Sprintf("the agent %v did not answer within %v; its request %s may", q.address(), tools[q.agent].timeout, m.ID); {
	case strings.HasPrefix(s.Text, late):
		switch {
		case first.IsZero() || s.at.Before(first):
			return "the time limit is not over"
		case reply != nil && surely(reply.Created):
			return "there is a reply in time"
		case surely(msg.deleted):
			return "it was deleted before"
		case isParked && surely(parked.since):
			return "it is parked since " + clock(parked.since)
		}
	case strings.HasPrefix(s.Text, fmt.Sprintf("the agent %v has not answered the request %s: %v", q.address(), m.ID, inbox.ErrNoReply)):
		if msg.deleted.IsZero() && !isParked && !h.w.retried[msg.object] && q.agent != "ghost" && !(q.agent == "envoy" && msg.last.Expired) {
			return "it was neither deleted nor parked"
		}
	case !inTime:
		return "it has no reply in time"
	case s.Text != reply.Content:
		return "its reply is " + text(reply)
	case s.at.Before(reply.Created):
		return "its reply is later"
	}
	return ""
}

// ends returns the earliest and the latest end of the time limit of a message: those of the cycles of the caller. They differ if a
// program has changed the deadline of the caller's request, or sent a second message with that request. Zero is none.
func (h *history) ends(q *question, m *inbox.Message) (first, last time.Time) {
	bounded := true
	for _, cycle := range h.w.deadlines[q.by.Name] {
		end := q.end(m.Created, cycle)
		if bounded = bounded && !end.IsZero(); end.After(last) {
			last = end
		}
		if !end.IsZero() && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	if !m.Deadline.IsZero() { // until which the asked agent answers
		return first, m.Deadline
	}
	if !bounded {
		last = time.Time{}
	}
	return first, last
}
