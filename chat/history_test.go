package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// historian has the models of a test's conversations. Each message is one word, and a summary has the words of its messages, so
// the words of a context are those of the conversation.
type historian struct {
	options chat.Options           // with the History
	delay   time.Duration          // of a summary
	pace    time.Duration          // of a reply
	fail    func(prompt int) error // of the model that summarises; may be nil
	silent  bool                   // that model answers with nothing

	mu       sync.Mutex
	contexts []string        // of the replies, as JSON
	prompts  []string        // of the model that summarises
	covered  map[string]bool // the words of the summaries in the contexts
	errs     []error
}

// newHistorian returns the models of a conversation that is summarised automatically.
func newHistorian(threshold, window int) *historian {
	s := &historian{}
	s.reset()
	s.options.History = &chat.History{Model: s, Threshold: threshold, Window: window}
	return s
}

func (s *historian) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contexts, s.prompts, s.covered, s.errs = nil, nil, map[string]bool{}, nil
}

// Stream implements [chat.Model]: it summarises.
func (s *historian) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		prompt := p.Messages[0].PlainText()
		s.mu.Lock()
		s.prompts = append(s.prompts, prompt)
		n := len(s.prompts)
		for _, word := range wordsOfPrompt(prompt) {
			if s.covered[word] && !strings.HasPrefix(prompt, `{"role":"summary"`) {
				s.errs = append(s.errs, fmt.Errorf("the model is asked again for %q, after a context had its summary", word))
			}
		}
		s.mu.Unlock()
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return
		}
		if s.fail != nil {
			if err := s.fail(n); err != nil {
				yield(chat.Chunk{}, err)
				return
			}
		}
		if s.silent {
			return
		}
		yield(chat.TextDelta("t", strings.Join(wordsOfPrompt(prompt), " ")), nil)
	}
}

// wordsOfPrompt returns the texts in the prompt of a model that summarises.
func wordsOfPrompt(prompt string) (words []string) {
	for line := range strings.Lines(prompt) {
		var m struct{ Role, Text string }
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Role == "" {
			panic(fmt.Sprintf("%q: %v", line, err))
		}
		words = append(words, strings.Fields(m.Text)...) // a summary has several
	}
	return words
}

// reply answers a question with its word and an exclamation mark.
func (s *historian) reply(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
	return chat.Answer(ctx, r, promptModel(func(p *chat.Prompt) []chat.Chunk {
		time.Sleep(s.pace)
		raw, err := json.Marshal(p.Messages)
		if err != nil {
			panic(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.contexts = append(s.contexts, string(raw))
		if p.Partial.PlainText() != "" {
			return nil
		}
		return says(p.Messages[len(p.Messages)-1].PlainText() + "!")
	}), nil)
}

func (s *historian) class() dohost.Class {
	return countingClassOf(&countingState{}, &handlers{Reply: s.reply, Options: s.options})
}

// lastContext returns the words of the last context, and the number of its messages that are summaries.
func (s *historian) lastContext() (words []string, summaries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wordsOf(s.contexts[len(s.contexts)-1])
}

// wordsOf returns the words of a context, and the number of its summaries.
func wordsOf(context string) (words []string, summaries int) {
	var list []chat.Message
	if err := json.Unmarshal([]byte(context), &list); err != nil {
		panic(err)
	}
	for _, m := range list {
		text, ok := strings.CutPrefix(m.PlainText(), "[Summary] ")
		if ok && m.Role == chat.RoleUser {
			summaries++
		}
		words = append(words, strings.Fields(text)...)
	}
	return words, summaries
}

// run runs f in an agent of the class.
func (s *historian) run(t *testing.T, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	runWithHost(t, s.class(), f)
}

// askWord asks, and waits for the end of the reply and of the summary that follows.
func askWord(t *testing.T, ctx context.Context, h *dohosttest.Host, word string) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		id, err := chat.Ask(ctx, p, []chat.Message{chat.Text(word, chat.RoleUser, word)}, nil)
		if err != nil {
			return err
		}
		r, _, err := chat.Wait(ctx, p, id)
		if r.Status != chat.StatusCompleted {
			t.Errorf("the reply to %s is %s: %s", word, r.Status, r.Error)
		}
		return err
	})
	h.Advance(time.Second)
}

// storeWords stores the messages m0 to before mN.
func storeWords(t *testing.T, ctx context.Context, h *dohosttest.Host, n int) (words []string) {
	t.Helper()
	var list []chat.Message
	for i := range n {
		words = append(words, fmt.Sprint("m", i))
		list = append(list, chat.Text(words[i], []chat.Role{chat.RoleUser, chat.RoleAssistant}[i%2], words[i]))
	}
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return chat.SetMessages(ctx, p, list) })
	return words
}

// summariesOf returns the summaries of the conversation: the number of messages, and the first and the last of each.
func summariesOf(t *testing.T, ctx context.Context, h *dohosttest.Host) (lines []string) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Summaries(ctx, p)
		for _, s := range list {
			last, _, _ := strings.Cut(s.Last, "_") // the ids of replies are random
			lines = append(lines, fmt.Sprintf("%d from %s to %s", s.Messages, s.First, last))
		}
		return errors.Join(err, p.Idle(ctx))
	})
	return lines
}

func (s *historian) wantContext(t *testing.T, summaries int, words ...string) {
	t.Helper()
	got, n := s.lastContext()
	if !slices.Equal(got, words) || n != summaries {
		t.Errorf("the context has %d summaries and the words\n%v, want %d and\n%v", n, got, summaries, words)
	}
}

func wantSummaries(t *testing.T, ctx context.Context, h *dohosttest.Host, want ...string) {
	t.Helper()
	if got := summariesOf(t, ctx, h); !slices.Equal(got, want) {
		t.Errorf("the summaries are %q, want %q", got, want)
	}
}

// A conversation with more than 100 messages keeps the newest 50 verbatim.
func TestHistoryKeepsWindow(t *testing.T) {
	s := newHistorian(0, 0)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		words := append(storeWords(t, ctx, h, 98), "q1")
		askWord(t, ctx, h, "q1")
		s.wantContext(t, 0, words...)
		wantSummaries(t, ctx, h) // 100 messages are not too many
		askWord(t, ctx, h, "q2")
		words = append(words, "q1!", "q2")
		s.wantContext(t, 0, words...)
		wantSummaries(t, ctx, h, "52 from m0 to m51")
		askWord(t, ctx, h, "q3")
		s.wantContext(t, 1, append(words, "q2!", "q3")...)
		var last []chat.Message
		if err := json.Unmarshal([]byte(s.contexts[2]), &last); err != nil || len(last) != 1+50+1 || len(s.prompts) != 1 {
			t.Errorf("the context has %d messages, want a summary, 50 messages and the question; %d prompts, %v", len(last), len(s.prompts), err)
		}
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			all, err := chat.Messages(ctx, p, 0)
			if len(all) != 104 {
				t.Errorf("%d messages are stored, want 104", len(all))
			}
			return err
		})
		wantInspected(t, h, "summary", "summary 1 : covers 52 messages, the last is m51 at place 54525952 map[messages:52]")
	})
}

// All readers of the same messages get the same context, in any incarnation.
func TestHistoryContextIsTheSameForAllReaders(t *testing.T) {
	s := newHistorian(8, 3)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 7)
		askWord(t, ctx, h, "q1")
		askWord(t, ctx, h, "q2")
		for i := range 3 {
			h.Evict(testID, dohost.EndFence)
			r := connectIdle(t, h, "r")
			list := allMessages(t, ctx, h)
			r.sendMessages(ctx, fmt.Sprint("again", i), "regenerate-message", list[:len(list)-1])
			r.waitEnd(t, fmt.Sprint("again", i))
			h.Advance(time.Second)
			r.close()
		}
		for i, c := range s.contexts[2:] {
			if c != s.contexts[1] {
				t.Errorf("reader %d gets\n%s, the first one\n%s", i, c, s.contexts[1])
			}
		}
		if _, n := s.lastContext(); n != 1 || len(s.contexts) != 5 {
			t.Errorf("%d contexts, the last with %d summaries", len(s.contexts), n)
		}
	})
}

// allMessages returns the stored messages.
func allMessages(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []chat.Message) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
		list, err = chat.Messages(ctx, p, 0)
		return err
	})
	return list
}

// sendMessages sends a request with messages.
func (r *reader) sendMessages(ctx context.Context, id, trigger string, list []chat.Message) {
	body, err := json.Marshal(map[string]any{"trigger": trigger, "messages": list})
	if err != nil {
		panic(err)
	}
	r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": map[string]any{"method": "POST", "body": string(body)}})
}
