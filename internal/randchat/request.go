package randchat

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost/chat"
)

// request is a request of a client or of the program.
type request struct {
	id         string
	number     int
	client     *client // nil for the program
	plan       Plan
	user       message   // that it adds
	list       []message // the conversation that it sends
	connection int       // of the client
	alone      bool      // nothing else may change the conversation until its reply begins
	sent       int       // when it was sent first
	sentAt     time.Time
	resent     int  // how often
	submits    bool // it may be skipped
	deletion   *deletion
	replaces   bool // it removes the messages that its list lacks
	continues  bool // it continues the message of another request, its origin
	origin     string
	continued  bool      // another request continues its message
	stopped    int       // when a stop of it was sent first; 0 before
	halted     bool      // a client has sent a stop of it
	dropped    int       // how often it was skipped without being stored
	acked      int       // when it was known to be stored; 0 before
	ended      int       // when its end was known; 0 before
	over       time.Time // a time before its end, when its handler was active; zero before
	outcome    string    // its end
	hooked     int       // the incarnation of the first call of OnResponse; 0 before
	message    string    // the id of its message, as clients know it
	seen       string    // the longest text of its reply that a client has received
	restarts   int       // of its reply, by OnRecovery
}

// newRequest makes a request of a client, or of the program if the client is nil. It returns nil if the client has no
// message to be replaced.
func (w *Observer) newRequest(c *client, in Instr) *request {
	n := w.Next()
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &request{id: fmt.Sprint("r", n), client: c, plan: in.Plan, submits: c != nil && in.Op != Redo, sentAt: time.Now()}
	q.user = userMessage("user-"+q.id, "question "+q.id)
	if c != nil {
		alone := w.aloneLocked(c)
		list, ok := listOf(c.list, q, in)
		if !ok {
			return nil
		}
		c.list, q.list = list, slices.Clone(list)
		q.alone, q.sent, q.replaces = alone, w.tickLocked(), in.Op != Submit
		if q.replaces {
			q.deletion = &deletion{keeps: idsOf(list)}
			w.deletions = append(w.deletions, q.deletion)
			c.stale = c.stale || !alone
		}
		c.sends, q.connection = append(c.sends, q.id), c.connections
		w.listsLocked(c, list)
	} else {
		q.sent = w.tickLocked()
	}
	for _, d := range w.deletions {
		if d.clears && d.done == 0 {
			q.stopped, q.halted = q.sent, true
		}
	}
	w.mayReplaceLocked(q)
	q.number = len(w.requests)
	w.requests = append(w.requests, q)
	w.plansLocked(q.id, &q.plan)
	return q
}

// mayReplaceLocked records that a submission, which is about to be sent, may replace others, or may be replaced by one that
// is on its way.
func (w *Observer) mayReplaceLocked(q *request) {
	if p := w.policy; !q.submits || p == chat.PolicyQueue || p == chat.PolicyDrop {
		return
	}
	for _, e := range w.requests {
		if e == q || !e.submits {
			continue
		}
		e.mayEndLocked()
		if e.acked == 0 {
			q.mayEndLocked()
		}
	}
}

// listOf returns the list that a client sends, and sets the message of the user that it is to answer.
func listOf(page []message, q *request, in Instr) (list []message, ok bool) {
	if in.Op == Submit {
		return append(slices.Clone(page), q.user), true
	}
	var at []int // the messages that may be replaced
	for i, m := range page {
		if (m.Role == "user") == (in.Op == Edit) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil, false
	}
	i := at[len(at)-1-in.K%len(at)]
	if in.Op == Edit {
		q.user.ID = page[i].ID
		return append(slices.Clone(page[:i]), q.user), true
	}
	for j := i - 1; j >= 0 && page[j].Role == "assistant"; j-- {
		i = j
	}
	if i == 0 {
		return nil, false
	}
	q.user = page[i-1]
	return slices.Clone(page[:i]), true
}

// aloneLocked reports whether a client's page is the conversation, and no other request may change that.
func (w *Observer) aloneLocked(c *client) bool {
	return !c.stale && len(w.clients) == 1 && !slices.ContainsFunc(w.requests, func(q *request) bool { return q.ended == 0 || q.client == nil || q.plan.Model })
}

// requestFrame returns the frame of a request.
func requestFrame(q *request) map[string]any {
	var list []any
	for _, m := range q.list {
		list = append(list, m.wire())
	}
	trigger := "submit-message"
	if !q.submits {
		trigger = "regenerate-message"
	}
	body, err := json.Marshal(map[string]any{"messages": list, "trigger": trigger})
	if err != nil {
		panic(err)
	}
	return map[string]any{
		"type": "cf_agent_use_chat_request", "id": q.id, "init": map[string]any{"method": "POST", "body": string(body)},
	}
}

// wire returns a message in the form of the wire protocol.
func (m *message) wire() any {
	if m.raw != nil {
		return m.raw
	}
	parts := []any{map[string]any{"type": "text", "text": m.Text}}
	return map[string]any{"id": m.ID, "role": m.Role, "parts": parts}
}
