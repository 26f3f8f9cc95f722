package randchat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// message is a message of the conversation, as far as the programs know it.
type message struct {
	ID, Role string
	Text     string // of all its texts
	Calls    []call // in order of their parts
	Parts    int
	raw      json.RawMessage // in a transcript
}

// call is a tool call of a message.
type call struct{ ID, State, Output string }

// UnmarshalJSON reads a message of the wire protocol.
func (m *message) UnmarshalJSON(data []byte) error {
	var wire struct {
		ID, Role string
		Parts    []struct {
			Type, Text, State string
			CallID            string `json:"toolCallId"`
			Output            json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*m = message{ID: wire.ID, Role: wire.Role, Parts: len(wire.Parts), raw: slices.Clone(data)}
	for _, p := range wire.Parts {
		if p.Type == "text" {
			m.Text += p.Text
		}
		if p.CallID != "" {
			m.Calls = append(m.Calls, call{p.CallID, p.State, string(p.Output)})
		}
	}
	return nil
}

// equal reports whether two messages are the same for a reader.
func (m *message) equal(o *message) bool {
	return m.ID == o.ID && m.Role == o.Role && m.Text == o.Text && slices.Equal(m.Calls, o.Calls)
}

func (m message) String() string {
	s := fmt.Sprintf("%s %s %q", m.Role, m.ID, m.Text)
	for _, c := range m.Calls {
		s += fmt.Sprintf(" [%s %s %s]", c.ID, c.State, c.Output)
	}
	return s
}

// sameList reports whether two conversations are the same for a reader.
func sameList(a, b []message) bool {
	return slices.EqualFunc(a, b, func(m, o message) bool { return m.equal(&o) })
}

func indexOf(list []message, id string) int {
	return slices.IndexFunc(list, func(m message) bool { return m.ID == id })
}

func idsOf(list []message) (ids []string) {
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	return ids
}

// userMessage returns a message of a user with a text.
func userMessage(id, text string) message {
	return message{ID: id, Role: "user", Text: text, Parts: 1}
}

// word returns word i of the reply to a request.
func word(request string, i int) string { return fmt.Sprintf("%s.%d ", request, i) }

// parseWords returns the request and the number of the words of a reply; ok is false if the words are not those of one
// request, each once, in order.
func parseWords(text string) (request string, n int, ok bool) {
	for i, w := range strings.Fields(text) {
		id, number, found := strings.Cut(w, ".")
		if !found || number != fmt.Sprint(i) || i > 0 && id != request {
			return request, i, false
		}
		request, n = id, i+1
	}
	return request, n, true
}

// page is a client's copy of the conversation, with the replies that it follows. It follows the rules of the wire
// protocol alone.
type page struct {
	list  []message
	views map[string]*view // by request
}

// view is a reply that a client follows.
type view struct {
	message   message
	connected int    // the number of the connection that has received it from its first chunk on
	next      uint64 // the number of the next chunk
	ended     bool   // the client has got its end
}

// chunk is a chunk of a reply.
type chunk struct {
	Type, Delta, MessageID, ErrorText string
	CallID                            string `json:"toolCallId"`
	Output                            json.RawMessage
}

// add adds a chunk to a message.
func (m *message) add(c chunk) {
	states := map[string]string{
		"tool-input-start": "input-streaming", "tool-input-available": "input-available", "tool-input-error": "output-error",
		"tool-approval-request": "approval-requested", "tool-output-available": "output-available",
		"tool-output-error": "output-error", "tool-output-denied": "output-denied",
	}
	switch state, ok := states[c.Type]; {
	case ok:
		i := slices.IndexFunc(m.Calls, func(o call) bool { return o.ID == c.CallID })
		if i < 0 {
			i = len(m.Calls)
			m.Calls = append(m.Calls, call{ID: c.CallID})
			m.Parts++
		}
		m.Calls[i].State, m.Calls[i].Output = state, string(c.Output)
	case c.Type == "start":
		m.ID = c.MessageID
	case c.Type == "text-delta":
		m.Text += c.Delta
	case c.Type == "text-start", c.Type == "start-step":
		m.Parts++
	}
}

// answer adds the message of a reply that has ended, after the messages that it answers, unless the client has it.
func (p *page) answer(m message, answered []string) {
	if m.ID == "" || m.Parts == 0 || indexOf(p.list, m.ID) >= 0 {
		return
	}
	at := len(p.list)
	if len(answered) > 0 {
		if i := indexOf(p.list, answered[len(answered)-1]); i >= 0 {
			for at = i + 1; at < len(p.list) && p.list[at].Role == "assistant"; at++ {
			}
		}
	}
	p.list = slices.Insert(p.list, at, m)
}
