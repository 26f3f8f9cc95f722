package chat

import (
	"bytes"
	"context"
	"math"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/summary"
	"github.com/dohost/dohost/internal/work"
)

// The bounds of the calls in the prompt of a model that summarises, in addition to those of package summary. Longer texts are cut, and the
// cut text has the number of the bytes left out.
const (
	// maxSummaryCall bounds the input of a call, and its result, in bytes.
	maxSummaryCall = 2 << 10
	// maxSummaryParts bounds the calls and the files of a message, each.
	maxSummaryParts = 32
)

// summaryPart are consecutive messages without a summary.
type summaryPart struct {
	from, to    uint64 // places; to is that of the last message
	first, last string // ids
	messages    int
	prompt      []byte // a line of JSON for each message that is not of the system
	full        bool   // more messages would make the prompt too long
	changed     bool   // since the messages were read, one was written or deleted, other than for MaxMessages
}

// messageChanged notes that a message was written at a place, or deleted there for another reason than MaxMessages.
func (k *summarizer) messageChanged(place uint64) {
	if p := k.part; p != nil && place <= p.to {
		p.changed = true
	}
}

// gather returns the messages from a place on that may be summarised now: up to the place to, and at most most of them; 0 means
// no bound. It ends before a message that may still change (see changingMessages), and before the prompt becomes too long. If that
// is a message of the assistant, it ends before the messages of the users directly before: a continuation has its question. It reads the
// messages one after the other, so it needs the memory of one message and of the prompt.
func (k *summarizer) gather(ctx context.Context, from, to uint64, most int) (p summaryPart, err error) {
	p.from = from
	var changes changingMessages
	if changes, err = k.changing(ctx); err != nil {
		return p, err
	}
	if most > 0 {
		most++ // the message after the range may need the end of the range
	}
	question, asking := p, false // the range without the messages of the users at its end
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Start: dohost.KeyOf(from), Limit: most}) {
		if err != nil {
			return p, err
		}
		r := &row.Value
		m, err := r.Message()
		if err != nil {
			return p, err
		}
		if changes.has(r, &m) {
			if m.Role == RoleAssistant && asking {
				return question, nil
			}
			break
		}
		if r.Place > to || p.messages+1 == most {
			break
		}
		if m.Role == RoleAssistant {
			asking = false
		} else if !asking {
			question, asking = p, true
		}
		var line []byte
		if m.Role != RoleSystem {
			if line, err = rawjson.Encode(lineOf(&m)); err != nil {
				return p, err
			}
			if len(p.prompt) > 0 && len(p.prompt)+len(line) > summary.MaxPrompt {
				p.full = true
				break
			}
			p.prompt = append(append(p.prompt, line...), '\n')
		}
		if p.messages++; p.messages == 1 {
			p.first = m.ID
		}
		p.to, p.last = r.Place, m.ID
	}
	p.prompt = bytes.TrimSuffix(p.prompt, []byte("\n"))
	return p, nil
}

// changingMessages are the messages of open requests: those that they answer, and their replies.
type changingMessages struct {
	ids   map[string]bool
	place uint64 // of the running reply, after the messages that it answers; messages after it wait for it
}

// changing returns the messages of open requests.
func (k *summarizer) changing(ctx context.Context) (c changingMessages, err error) {
	c = changingMessages{map[string]bool{}, math.MaxUint64}
	for row, err := range replies.All(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"}) {
		if err != nil {
			return c, err
		}
		r := &row.Value
		for _, id := range append(r.Users, r.Message) {
			c.ids[id] = true
		}
		if r.State == work.Running {
			c.place = min(c.place, r.Place)
		}
	}
	return c, nil
}

// has reports whether a message, and those after it, may still change without a client: a request is open for it, a reply is
// to be stored before it, or one of its calls has no result.
func (c *changingMessages) has(r *messageRow, m *Message) bool {
	if c.ids[r.ID] || r.Place >= c.place {
		return true
	}
	for _, p := range m.Parts {
		if uimessage.IsPending(p) {
			return true
		}
	}
	return false
}

// promptLine is a message in the prompt of a model that summarises. As JSON, no text of a client can look like the line of another message.
type promptLine struct {
	Role  Role         `json:"role"`
	Text  string       `json:"text,omitempty"`
	Files []string     `json:"files,omitempty"`
	Calls []promptCall `json:"calls,omitempty"`
}

type promptCall struct {
	Tool   string `json:"tool"`
	Input  string `json:"input"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// lineOf returns a message for the prompt, without reasoning and data.
func lineOf(m *Message) promptLine {
	line := promptLine{Role: m.Role, Text: summary.Shorten(m.PlainText(), summary.MaxText)}
	for _, p := range m.Parts {
		switch {
		case p.Type() == "file" && len(line.Files) < maxSummaryParts:
			line.Files = append(line.Files, summary.Shorten(p.Text("filename")+" "+p.Text("mediaType"), 200))
		case isBudgetCall(p):
		case uimessage.IsCall(p) && len(line.Calls) < maxSummaryParts:
			c := promptCall{Tool: summary.Shorten(uimessage.ToolName(p), 200), Input: summary.Shorten(string(inputOf(p)), maxSummaryCall)}
			text, failed := toolResultOf(p)
			if text = summary.Shorten(text, maxSummaryCall); failed {
				c.Error = text
			} else {
				c.Result = text
			}
			line.Calls = append(line.Calls, c)
		}
	}
	return line
}
