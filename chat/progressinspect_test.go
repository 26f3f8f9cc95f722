package chat_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// progressOf returns the progress of the calls of an agent that operators see, and whether their texts have it.
func progressOf(t *testing.T, h *dohosttest.Host, name string) (list []string) {
	t.Helper()
	for d, err := range h.Host().Details(t.Context(), dohost.ID{Class: "member", Name: name}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind != "call" {
			continue
		}
		p, ok := d.Fields["progress"]
		if strings.Contains(d.Text, `, progress "`+p+`"`) != ok {
			t.Errorf("the text is %s", d.Text)
		}
		list = append(list, p)
	}
	return list
}

// TestProgressForOperators inspects a call of an agent tool while the other agent answers: the end of its text is there, without a wake of
// either agent, until the call has ended.
func TestProgressForOperators(t *testing.T) {
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() == "a" {
			return nil
		}
		for _, text := range []string{"The first part.", " Then\n\nthe second,", strings.Repeat(" ä", 60), " which ends."} {
			if err := r.Say(ctx, text); err != nil {
				return err
			}
			if err := dohost.Sleep(ctx, 10*time.Second); err != nil {
				return err
			}
		}
		return nil
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		client := connectMember(t, h, "a", "client")
		defer client.close()
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		for _, want := range []string{"The first part.", "The first part. Then the second,", "… ä", "… ä"} {
			got := progressOf(t, h, "a")
			if len(got) != 1 || !strings.HasPrefix(got[0], want) || !utf8.ValidString(got[0]) || len(got[0]) > 104 ||
				(!strings.HasPrefix(want, "…")) != (got[0] == want) {
				t.Errorf("the progress is %q, want %q", got, want)
			}
			h.Advance(10 * time.Second)
		}
		h.Advance(time.Minute)
		if got := progressOf(t, h, "a"); len(got) != 1 || got[0] != "" {
			t.Errorf("after the answer the progress is %q", got)
		}
	})
}

// TestProgressForOperatorsReadsTheLastChunks inspects a call. The last batch of its log has more chunks than the text needs: their white
// space counts, though the text does not have it, and no older chunk of the batch is read.
func TestProgressForOperatorsReadsTheLastChunks(t *testing.T) {
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() == "a" {
			return nil
		}
		for _, batch := range [][]string{{"first"}, {" second ", " third ", strings.Repeat(" ", 101), "last"}} {
			for i, text := range batch { // each is a part of its own: deltas of one part would become one chunk
				if err := r.Send(ctx, chat.TextDelta(fmt.Sprint(len(batch), i), text)); err != nil {
					return err
				}
			}
			if err := dohost.Sleep(ctx, 10*time.Second); err != nil {
				return err
			}
		}
		return nil
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		client := connectMember(t, h, "a", "client")
		defer client.close()
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		h.Advance(15 * time.Second)
		if got := progressOf(t, h, "a"); len(got) != 1 || got[0] != "last" {
			t.Errorf("the progress is %q", got)
		}
		if _, rows := logsOf(t, h, "a"); rows != 2 {
			t.Errorf("the log has %d batches", rows)
		}
	})
}
