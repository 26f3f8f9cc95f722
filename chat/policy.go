package chat

import (
	"time"

	"github.com/dohost/dohost/internal/work"
)

// Policy decides about a submission that arrives while another request is open. Other requests (regenerations,
// continuations, requests of the program) are always queued.
type Policy string

// The policies.
const (
	// PolicyQueue answers all submissions, one at a time. It is the default.
	PolicyQueue Policy = "queue"
	// PolicyLatest answers the last of the queued submissions and skips the others. Their messages stay.
	PolicyLatest Policy = "latest"
	// PolicyMerge joins the user's messages of the queued submissions into one message, and answers it.
	PolicyMerge Policy = "merge"
	// PolicyDrop skips a submission while a request is open, and does not store its message.
	PolicyDrop Policy = "drop"
	// PolicyDebounce is PolicyLatest, but answers only after a pause without submissions: see Options.Debounce.
	PolicyDebounce Policy = "debounce"
)

// admission is the effect of a submission on the open requests.
type admission struct {
	drop  bool     // the submission itself is skipped
	skip  []string // requests that the submission replaces
	merge []string // user messages to be joined with the submission's own
}

// admit decides about a submission. open is in order of arrival.
func (p Policy) admit(open []replyRow) (a admission) {
	if p == PolicyDrop {
		a.drop = len(open) > 0
		return a
	}
	if p != PolicyLatest && p != PolicyMerge && p != PolicyDebounce {
		return a
	}
	answered := map[string]bool{} // messages that the running reply answers, or in a.merge
	for i := range open {
		if open[i].running() {
			for _, id := range open[i].Users {
				answered[id] = true
			}
		}
		if open[i].State != work.Waiting || !open[i].Submits {
			continue
		}
		a.skip = append(a.skip, open[i].ID)
		for _, id := range open[i].Users {
			if p == PolicyMerge && !answered[id] {
				answered[id] = true
				a.merge = append(a.merge, id)
			}
		}
	}
	return a
}

// due returns the time when a submission made now may begin, in ms; 0 if immediately.
func (o *Options) due(now time.Time) int64 {
	if o.Policy != PolicyDebounce {
		return 0
	}
	return now.Add(o.Debounce).UnixMilli()
}
