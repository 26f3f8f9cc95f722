package chat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// summarize calls Summarize, and returns the number of messages of the summary; 0 for none.
func summarize(t *testing.T, ctx context.Context, h *dohosttest.Host, o *chat.SummarizeOptions) (messages int, failed error) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		s, err := chat.Summarize(ctx, p, o)
		if failed = err; s != nil {
			messages = s.Messages
		}
		return nil
	})
	return messages, failed
}

// Summarize leaves the newest 20 messages, takes at most Cutoff-20, and nothing if there are fewer than 20.
func TestSummarizeTakes(t *testing.T) {
	for _, c := range []struct {
		stored, cutoff int
		want           []int
	}{
		{39, 0, []int{0}},
		{40, 0, []int{20, 0}},
		{99, 0, []int{79, 0}},
		{130, 0, []int{80, 30, 0}},
		{100, 40, []int{20, 20, 20, 20, 0}},
		{75, 50, []int{30, 25, 0}},
		{0, 0, []int{0}},
	} {
		s := &historian{covered: map[string]bool{}}
		s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			words := append(storeWords(t, ctx, h, c.stored), "q1")
			made := 0
			for i, want := range c.want {
				got, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s, Cutoff: c.cutoff})
				if got != want || err != nil {
					t.Errorf("%d messages, cutoff %d: summary %d has %d messages, %v; want %d", c.stored, c.cutoff, i, got, err, want)
				}
				made += min(want, 1)
			}
			askWord(t, ctx, h, "q1")
			s.wantContext(t, made, words...)
		})
	}
}

// Messages of open requests are not summarised, nor are messages after the place of a reply.
func TestSummarizeDuringReplies(t *testing.T) {
	s := &historian{covered: map[string]bool{}}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return errors.Join(dohost.Sleep(ctx, time.Minute), s.reply(p, ctx, r))
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		words := storeWords(t, ctx, h, 30)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			for _, q := range []string{"q1", "q2"} {
				if _, err := chat.Ask(ctx, p, []chat.Message{chat.Text(q, chat.RoleUser, q)}, nil); err != nil {
					return err
				}
			}
			return nil
		})
		storeMore := func(from int) {
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return storeMessages(ctx, p, from, from+60) })
		}
		storeMore(100)
		if n, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s, Cutoff: 200}); n != 30 || err != nil {
			t.Errorf("during the first reply the summary has %d messages, %v; want those before the question", n, err)
		}
		h.Advance(90 * time.Second)
		s.wantContext(t, 1, append(words, "q1")...)
		if n, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s, Cutoff: 200}); n != 0 || err != nil {
			t.Errorf("during the second reply the summary has %d messages, %v", n, err)
		}
		h.Advance(time.Minute)
		s.wantContext(t, 1, append(words, "q1", "q1!", "q2")...)
		if n, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s, Cutoff: 200}); n != 44 || err != nil {
			t.Errorf("after the replies the summary has %d messages, %v", n, err)
		}
	})
}

// A running reply has a place. Messages after it wait for the reply, also if it answers no message.
func TestSummarizeDuringReplyToNothing(t *testing.T) {
	s := &historian{covered: map[string]bool{}}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return errors.Join(dohost.Sleep(ctx, time.Minute), s.reply(p, ctx, r))
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		words := storeWords(t, ctx, h, 30)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, nil, nil)
			return errors.Join(err, dohost.Sleep(ctx, time.Second), storeMessages(ctx, p, 100, 160))
		})
		if n, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s, Cutoff: 200}); n != 30 || err != nil {
			t.Errorf("the summary has %d messages, %v; want those before the reply", n, err)
		}
		h.Advance(2 * time.Minute)
		s.wantContext(t, 1, words...)
		wantSummaries(t, ctx, h, "30 from m0 to m29")
	})
}

// Two calls and the fiber make one summary after the other.
func TestSummarizeConcurrently(t *testing.T) {
	s := newHistorian(100, 30)
	s.delay = time.Second
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 119)
		askWord(t, ctx, h, "q1")
		made := make([]int, 2)
		var clients []*dohosttest.Client
		for i := range made {
			clients = append(clients, h.Client(func(ctx context.Context) (err error) {
				made[i], err = summarize(t, ctx, h, &chat.SummarizeOptions{Cutoff: 40})
				return err
			}))
		}
		for _, c := range clients {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		wantSummaries(t, ctx, h, "91 from m0 to m90")
		if !slices.Equal(made, []int{0, 0}) || len(s.prompts) != 1 {
			t.Errorf("%v, %d prompts", made, len(s.prompts))
		}
	})
}

// No summary replaces instructions: messages of the system are in each context.
func TestSummarizeKeepsSystemMessages(t *testing.T) {
	s := &historian{covered: map[string]bool{}}
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 50)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			return chat.SetMessages(ctx, p, []chat.Message{chat.Text("m3", chat.RoleSystem, "polite"), chat.Text("m7", chat.RoleSystem, "brief")})
		})
		if n, err := summarize(t, ctx, h, &chat.SummarizeOptions{Model: s}); n != 30 || err != nil {
			t.Fatal(n, err)
		}
		askWord(t, ctx, h, "q1")
		words, n := s.lastContext()
		if got := strings.Join(words, " "); n != 1 || !strings.HasPrefix(got, "polite brief m0 m1 m2 m4 m5 m6 m8 m9 ") || !strings.HasSuffix(got, "m49 q1") {
			t.Errorf("%d summaries: %s", n, got)
		}
		if strings.Contains(s.prompts[0], "polite") {
			t.Errorf("the prompt is %s", s.prompts[0])
		}
	})
}

// The prompt has a bounded size: long texts and results are cut, and more messages begin another summary.
func TestSummarizeBoundsPrompt(t *testing.T) {
	s := &historian{}
	var prompts []string
	model := promptModel(func(p *chat.Prompt) []chat.Chunk {
		prompts = append(prompts, p.Messages[0].PlainText())
		return says("x")
	})
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var list []chat.Message
		for i := range 60 {
			m := chat.Text(fmt.Sprint("m", i), chat.RoleAssistant, strings.Repeat("x", 9000))
			for _, state := range []string{"output-available", "output-error"} {
				call, err := chat.NewPart("tool-read", map[string]any{
					"toolCallId": state, "state": state, "input": map[string]any{"of": strings.Repeat("y", 2500)},
					"output": strings.Repeat("z", 2500), "errorText": strings.Repeat("e", 2500),
				})
				if err != nil {
					t.Fatal(err)
				}
				m.Parts = append(m.Parts, call)
			}
			list = append(list, m)
		}
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return chat.SetMessages(ctx, p, list) })
		total := 0
		for n, i := 1, 0; n > 0; i++ {
			var err error
			if n, err = summarize(t, ctx, h, &chat.SummarizeOptions{Model: model}); err != nil || n > 16 || n == 0 && i < 2 {
				t.Fatalf("summary %d has %d messages, %v", i, n, err)
			}
			total += n
		}
		if total != 30 { // then fewer than 20 are left, which would fit
			t.Errorf("the summaries have %d messages", total)
		}
	})
	for _, p := range prompts {
		if len(p) > 256<<10 || len(p) < 200<<10 || strings.Count(p, "bytes left out") != 5*(strings.Count(p, "\n")+1) {
			t.Errorf("a prompt has %d bytes", len(p))
		}
	}
}

// Fields that are missing or contradict each other are errors.
func TestSummarizeOptionsAreChecked(t *testing.T) {
	s := &historian{}
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 50)
		for _, o := range []*chat.SummarizeOptions{nil, {}, {Model: s, Cutoff: 39}, {Model: s, Cutoff: -1}} {
			if n, err := summarize(t, ctx, h, o); n != 0 || !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("%+v: %d messages, %v", o, n, err)
			}
		}
	})
	for want, o := range map[string]chat.Options{
		"History.Model is nil":                        {History: &chat.History{}},
		"History.Threshold is 1: want 2 or more":      {History: &chat.History{Model: s, Threshold: 1}},
		"History.Window is 10: want 1 to Threshold-1": {History: &chat.History{Model: s, Threshold: 10, Window: 10}},
		"History.Window is -1: want 1 to Threshold-1": {History: &chat.History{Model: s, Window: -1}},
		"MaxMessages is 199: want at least twice":     {History: &chat.History{Model: s}, MaxMessages: 199},
	} {
		h, err := dohost.Open(t.TempDir(), nil, countingClass(&countingState{}, o))
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Options.MaxMessages deletes messages, and their summaries stay.
func TestHistoryOutlivesTrimmedMessages(t *testing.T) {
	s := newHistorian(4, 2)
	s.options.MaxMessages = 8
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		words := append(storeWords(t, ctx, h, 4), "q1")
		for i := range 4 {
			askWord(t, ctx, h, words[len(words)-1])
			if got, _ := s.lastContext(); !slices.Equal(got, words) {
				t.Errorf("the context has the words %v, want %v", got, words)
			}
			words = append(words, fmt.Sprintf("q%d!", i+1), fmt.Sprintf("q%d", i+2))
		}
		if all := allMessages(t, ctx, h); len(all) != 8 || all[0].ID != "q1" {
			t.Errorf("%d messages, the first is %s", len(all), all[0].ID)
		}
		wantSummaries(t, ctx, h, "4 from m0 to m3", "4 from q1 to msg")
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return chat.Clear(ctx, p) })
		wantSummaries(t, ctx, h)
	})
}
