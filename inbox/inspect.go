package inbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost"
)

// detailSummaries is the kind of the item that describes the summaries of an agent's conversation.
const detailSummaries = "inbox-summaries"

// inspect lists the summaries of the conversation for operators, as one item; none without a summary. It reads all of them, at most
// summary.MaxRows.
func (h *history) inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		if kind := v.Query().Kind; kind != "" && kind != detailSummaries {
			return
		}
		var first, last summaryRow
		n, covered, bytes := int64(0), int64(0), int64(0)
		for row, err := range summaries.Scan(v, &dohost.Query[summaryRow]{Prefix: h.key()}) {
			if err != nil {
				yield(dohost.Resource{}, err)
				return
			}
			if last = row.Value; n == 0 {
				first = last
			}
			n, covered, bytes = n+1, covered+int64(last.Messages), bytes+int64(len(last.Content))
		}
		if n == 0 {
			return
		}
		since := time.UnixMilli(last.Created).UTC().Format(time.RFC3339)
		yield(dohost.Resource{
			Kind: detailSummaries, ID: h.agent, Counts: map[string]int64{"summaries": n, "messages": covered, "bytes": bytes},
			Text: fmt.Sprintf("summaries: %d, of %d messages from %q to %q, %d bytes, the last one since %s", n, covered, first.First, last.Last, bytes, since),
			Fields: map[string]string{
				"collection": h.messages.Name, "agent": h.agent, "first": first.First, "last": last.Last, "since": since,
			},
		}, nil)
	}
}
