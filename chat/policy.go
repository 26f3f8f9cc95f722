package chat

import (
	"strings"
	"time"
)

// Policy says what becomes of a submission that comes while another request is open. What is no
// submission (a regeneration, a continuation, what the program asks) always waits its turn.
type Policy string

// The policies.
const (
	// Queue answers all, one after the other. It is the default.
	Queue Policy = "queue"
	// Latest answers the last one of those that wait: the others are skipped. Their messages stay.
	Latest Policy = "latest"
	// Merge makes one message of the user's of those that wait, and answers that.
	Merge Policy = "merge"
	// Drop takes nothing while a request is open: it is skipped, and its message is not stored.
	Drop Policy = "drop"
	// Debounce is Latest, and answers when nothing has come for a while: see Options.Debounce.
	Debounce Policy = "debounce"
)

// admission is what a submission does to those that are open.
type admission struct {
	drop  bool     // it is not taken itself
	skip  []string // requests that it takes the place of
	merge []string // messages of the user's that become one with its own
}

// admit decides about a submission. What is open is in the order in which it came.
func (p Policy) admit(open []replyRow) (a admission) {
	if p == Drop {
		a.drop = len(open) > 0
		return a
	}
	if p != Latest && p != Merge && p != Debounce {
		return a
	}
	answered := map[string]bool{} // messages that are being answered, or are in a.merge
	for i := range open {
		if open[i].Status == Running {
			for _, id := range open[i].Users {
				answered[id] = true
			}
		}
		if open[i].Status != Queued || !open[i].Submits {
			continue
		}
		a.skip = append(a.skip, open[i].ID)
		for _, id := range open[i].Users {
			if p == Merge && !answered[id] {
				answered[id] = true
				a.merge = append(a.merge, id)
			}
		}
	}
	return a
}

// joined is the message of the user's that others become one with: the last of those that were sent, with
// the texts of all, by a blank line, and what else they have.
func joined(earlier []Message, last Message) Message {
	m := last.Clone()
	var texts []string
	var rest []Part
	for _, e := range append(earlier, last) {
		if s := e.PlainText(); s != "" {
			texts = append(texts, s)
		}
		for _, p := range e.Parts {
			if p.Type() != "text" {
				rest = append(rest, p.clone())
			}
		}
	}
	m.Parts = append([]Part{newPart("text").with("text", strings.Join(texts, "\n\n"))}, rest...)
	return m
}

// due is when a submission of now may begin, in ms; 0 if at once.
func (o *Options) due(now time.Time) int64 {
	if o.Policy != Debounce {
		return 0
	}
	return now.Add(o.Debounce).UnixMilli()
}
