package chat_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/objectstore"
)

// A summary that fails costs a bounded number of calls of the model: fewer if the answers are invalid. Then the replies of an hour
// start no other, also if a client changes the messages, and an end of the incarnation does not begin the count again.
func TestHistoryFailedSummaryCost(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(int) error
		most int
	}{
		"invalid answer": {nil, 3},
		"failing model":  {func(int) error { return errors.New("out of tokens") }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHistorian(7, 3)
			s.fail, s.silent = c.fail, true
			s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				storeWords(t, ctx, h, 6)
				askWord(t, ctx, h, "q1")
				h.Advance(time.Minute)
				h.Evict(testID, dohost.EndFence)
				h.Advance(40 * time.Minute)
				if n := len(s.prompts); n != c.most {
					t.Errorf("the model is called %d times, want %d", n, c.most)
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					return chat.SetMessages(ctx, p, []chat.Message{chat.Text("m0", chat.RoleUser, "new")})
				})
				askWord(t, ctx, h, "q2")
				h.Advance(time.Minute)
				if n := len(s.prompts); n != c.most {
					t.Errorf("in the next hour the model is called %d times", n-c.most)
				}
				h.Advance(2 * time.Hour)
				s.fail, s.silent = nil, false
				askWord(t, ctx, h, "q3")
				wantSummaries(t, ctx, h, "7 from m0 to q1")
			})
		})
	}
}

// Each reply that ends makes the model summarise at most once, also after the edit of the first message, which deletes all
// summaries. Replies that end during a summary make it summarise once more.
func TestHistoryCostOfEdits(t *testing.T) {
	s := newHistorian(7, 3)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 30 {
			askWord(t, ctx, h, fmt.Sprint("q", i))
		}
		s.reset()
		r := connectIdle(t, h, "mallory")
		defer r.close()
		for i := range 3 {
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": withText(allMessages(t, ctx, h)[:1], "q0", fmt.Sprint("new", i))})
			h.Advance(time.Second)
			s.reset() // the words of the deleted summaries are asked for again
			askWord(t, ctx, h, fmt.Sprint("r", i))
			if len(s.prompts) != 1 {
				t.Errorf("edit %d and a reply made the model summarise %d times", i, len(s.prompts))
			}
		}
		s.reset()
		s.delay = time.Minute
		for i := range 3 {
			askWord(t, ctx, h, fmt.Sprint("s", i))
		}
		h.Advance(10 * time.Minute)
		if len(s.prompts) != 2 {
			t.Errorf("three replies during a summary made the model summarise %d times, want 2", len(s.prompts))
		}
	})
}

// The answer of the model outlives a full disk.
func TestHistoryOnAFullDisk(t *testing.T) {
	s := newHistorian(7, 3)
	var disk *objectstore.FS
	s.fail = func(int) error { disk.SetFree(0); time.Sleep(20 * time.Second); return nil } // until the host has found out
	runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		disk = fs
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			if err := storeMessages(ctx, p, 0, 6); err != nil {
				return err
			}
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("q", chat.RoleUser, "q")}, nil)
			return err
		})
		time.Sleep(2 * time.Hour)
		if len(s.prompts) != 1 {
			t.Errorf("during 2 hours of a full disk the model is called %d times", len(s.prompts))
		}
		s.fail = nil
		disk.SetFree(1 << 40)
		time.Sleep(time.Minute)
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Summaries(ctx, p)
			if len(list) != 1 || len(s.prompts) != 1 {
				t.Errorf("then there are %d summaries of %d calls", len(list), len(s.prompts))
			}
			return err
		})
	}, s.class())
}

// A summary that could end with the question of a message with an open call ends before the question.
func TestHistoryLeavesQuestionOfOpenCall(t *testing.T) {
	s := newHistorian(3, 1)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 3)
		open, err := chat.NewPart("tool-sign", map[string]any{"toolCallId": "c", "state": "input-available", "input": map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		waits := chat.Text("w", chat.RoleAssistant, "w")
		waits.Parts = append(waits.Parts, open)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			return chat.SetMessages(ctx, p, []chat.Message{waits})
		})
		askWord(t, ctx, h, "q1")
		wantSummaries(t, ctx, h, "2 from m0 to m1")
	})
}
