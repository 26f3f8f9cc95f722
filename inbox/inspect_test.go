package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// Operators see the summaries of each agent's conversation as one item, also of an agent without a History that had one. Of two agents, each
// has its own.
func TestSummariesForOperators(t *testing.T) {
	s := &scribe{}
	cook := &inbox.Agent{Name: "cook", Model: &answerModel{}}
	in := inbox.ForMessages[desk](&messages, s.agent("clerk", 4, 2))
	entries := append(names("eve"), inbox.On(in), inbox.On(inbox.ForMessages[desk](&messages, cook)))
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		listed := func(q *dohost.DetailQuery) (list []string) {
			for r, err := range h.Host().FindDetails(ctx, dohost.ID{Class: string(desks), Name: "a"}, q) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Kind == "inbox-summaries" {
					list = append(list, fmt.Sprint(r.ID, r.Counts, r.Fields["collection"], r.Fields["first"], r.Fields["last"]), r.Text)
				}
			}
			return list
		}
		store(t, ctx, h, "m", 7, time.Now())
		equal(t, "before a summary", listed(nil))
		with := *s.agent("cook", 4, 2).History
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			var errs []error
			for range 2 { // the clerk has 5 messages more than its window, and the threshold is 4
				_, err := s.agent("clerk", 4, 2).Summarize(ctx, d, &messages)
				errs = append(errs, err)
			}
			for i := range 4 {
				at := time.Now()
				m := inbox.Message{ID: fmt.Sprint("c", i), Content: "x", From: "ada", To: "cook", Role: chat.RoleUser, Created: at, Processed: at}
				errs = append(errs, messages.Insert(ctx, d.Storage(), m))
			}
			_, err := (&inbox.Agent{Name: "cook", Model: &answerModel{}, History: &with}).Summarize(ctx, d, &messages)
			return errors.Join(append(errs, err)...)
		})
		want := []string{
			"clerk" + fmt.Sprint(map[string]int64{"bytes": 13, "messages": 5, "summaries": 2}) + "messages" + "m0" + "m4",
			`summaries: 2, of 5 messages from "m0" to "m4", 13 bytes, the last one since 2000-01-01T00:00:00Z`,
			"cook" + fmt.Sprint(map[string]int64{"bytes": 3, "messages": 2, "summaries": 1}) + "messages" + "c0" + "c1",
			`summaries: 1, of 2 messages from "c0" to "c1", 3 bytes, the last one since 2000-01-01T00:00:00Z`,
		}
		equal(t, "all", listed(nil), want...)
		equal(t, "by kind", listed(&dohost.DetailQuery{Kind: "inbox-summaries", ID: "cook"}), want[2:]...)
		equal(t, "of another kind", listed(&dohost.DetailQuery{Kind: "fiber"}))
	}, entries...)
}
