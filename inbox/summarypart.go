package inbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/summary"
)

// excess returns the number of messages that the next summary is to cover: all messages before the window, and at most Threshold. It
// is zero if there are not too many messages. If always is set, it is zero only if all messages fit into the window. The window has at
// most History.Window messages, and half of MaxBytes.
func (a *Agent) excess(ctx context.Context, s *dohost.Storage, h *history, always bool) (int, error) {
	threshold, window, err := summary.Limits(a.History.Threshold, a.History.Window)
	if err != nil {
		return 0, err
	}
	x, err := h.state(ctx, s)
	if err != nil {
		return 0, err
	}
	most := cmp.Or(a.MaxBytes, defaultBytes)
	n, size, keep := 0, 0, 0
	q := &dohost.Query[Message]{Index: conversationIndex, Prefix: nameKey(h.agent), Reverse: true, Limit: threshold + window}
	for row, err := range h.messages.All(ctx, s, q) {
		if err != nil {
			return 0, err
		}
		if row.Cursor <= x.Covered || size > 4*most { // a part of the messages is enough: the rest is in a later summary
			break
		}
		n++
		if size += len(row.Value.Content); keep == n-1 && n <= window && size <= most/2 {
			keep = n
		}
	}
	if !always && n <= threshold && size <= most {
		return 0, nil
	}
	return min(n-keep, threshold), nil
}

// part are consecutive messages without a summary.
type part struct {
	after, to   dohost.Cursor // places: the place before the first message, and the place of the last one
	first, last string        // ids
	messages    int
	prompt      string // a line of JSON for each message that is not of the system
}

// promptLine is a message in the prompt of a model that summarises. As JSON, no text can look like the line of another message.
type promptLine struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// promptOf returns the prompt of lines.
func promptOf(lines ...promptLine) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, line := range lines {
		if err := e.Encode(line); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// gather returns at most most messages after a place, as far as they fit into a prompt.
func (h *history) gather(ctx context.Context, s *dohost.Storage, after dohost.Cursor, most int) (p part, err error) {
	p.after = after
	q := &dohost.Query[Message]{Index: conversationIndex, Prefix: nameKey(h.agent), After: after, Limit: most}
	for row, err := range h.messages.All(ctx, s, q) {
		if err != nil {
			return p, err
		}
		m := row.Value
		if role := m.roleFor(h.agent); role != chat.RoleSystem {
			line, err := promptOf(promptLine{string(role), summary.Shorten(m.Content, summary.MaxText)})
			if err != nil {
				return p, err
			}
			if len(p.prompt) > 0 && len(p.prompt)+len(line) > summary.MaxPrompt {
				break
			}
			p.prompt += line
		}
		if p.messages++; p.messages == 1 {
			p.first = row.Key
		}
		p.to, p.last = row.Cursor, row.Key
	}
	return p, nil
}

// nextPart returns the messages of the next summary. Without messages, no summary is to be made.
func (a *Agent) nextPart(ctx context.Context, s *dohost.Storage, h *history, always bool) (p part, err error) {
	n, err := a.excess(ctx, s, h, always)
	if err != nil || n == 0 {
		return p, err
	}
	x, err := h.state(ctx, s)
	if err != nil {
		return p, err
	}
	return h.gather(ctx, s, x.Covered, n)
}
