//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// countingAgent is a chat agent that counts, and records its runs in a file. The requests are "count 5"; "hold 5",
// which waits until the test releases it; "ask 5", which calls a tool of the client first; and "fetch 5", an answer
// that a provider continues and that can be fetched by name. Each run of any of them says at most wordsBeforeRelease
// words before the test releases it: see released.
type countingAgent struct {
	*chat.Agent[struct{}]
	file string
}

// countingClasses returns classes of speakers that handle an interrupted answer differently.
func countingClasses() (all []dohost.Class) {
	for name, of := range map[string]struct {
		rules chat.Recovery
		d     chat.RecoveryAction
	}{
		"speaker": {},
		"counted": {rules: chat.Recovery{CountAllAttempts: true}},
		"fragile": {rules: chat.Recovery{Off: true}},
		"stopper": {d: chat.RecoveryStop},
		"dropper": {d: chat.RecoveryDiscard},
	} {
		all = append(all, chat.Bind(dohost.Namespace[countingAgent](name), func(_ context.Context, a *chat.Agent[struct{}]) (*countingAgent, error) {
			return &countingAgent{a, os.Getenv("PROBE_FILE")}, nil
		}, &chat.Handlers[countingAgent, struct{}]{
			Reply: (*countingAgent).reply,
			OnRecovery: func(s *countingAgent, _ context.Context, c *chat.InterruptedReply) (chat.RecoveryAction, error) {
				var kept string
				_, err := c.Checkpoint(&kept)
				return of.d, errors.Join(err, s.record("cut %s, attempt %d, with %q", c.ID, c.Attempt, kept))
			},
			Options: chat.Options{Recovery: of.rules},
		}))
	}
	return all
}

func (s *countingAgent) record(format string, args ...any) error {
	return (&fiberAgent{file: s.file}).record(format, args...)
}

func (s *countingAgent) reply(ctx context.Context, r *chat.Reply) error {
	err := s.record("run of %s, attempt %d, body %s, tools %s", r.ID, r.Attempt, r.Body(), r.Tools())
	if err == nil && r.Attempt == 0 {
		err = r.SaveCheckpoint(ctx, "kept by "+r.ID)
	}
	if err != nil {
		return err
	}
	return chat.Answer(ctx, r, &countingModel{s, r.Attempt}, nil)
}

// wordsBeforeRelease is the number of words that a run says before its release: more than any test reads before it
// kills the process, so that the kill comes among words, and fewer than an answer that a test kills has left.
const wordsBeforeRelease = 10

// countingModel is the model of one run: each word contains the run's number.
type countingModel struct {
	agent *countingAgent
	run   int
}

// Stream is part of chat.Model.
func (m *countingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		var what string
		var n int
		for _, msg := range p.Messages {
			if msg.Role == chat.RoleUser {
				_, _ = fmt.Sscanf(msg.PlainText(), "%s %d", &what, &n) // else it counts to nothing
			}
		}
		if err := m.ask(p, what == "fetch"); err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		answered := false
		for _, part := range p.Partial.Parts {
			answered = answered || part.Text("state") == "output-available"
		}
		if what == "ask" && !answered {
			yield(chat.NewChunk("tool-input-available", map[string]any{"toolCallId": "call-" + p.Partial.ID, "toolName": "ask", "input": map[string]any{}}))
			return
		}
		first := len(strings.Fields(p.Partial.PlainText()))
		for i := first; i < n; i++ {
			select {
			case <-time.After(20 * time.Millisecond): // so that a kill comes among words
			case <-ctx.Done():
				return
			}
			if (what == "hold" || i-first >= wordsBeforeRelease) && waitReleased(ctx, m.agent.file) != nil {
				return
			}
			if c, err := chat.NewChunk("text-delta", map[string]any{"id": "t", "delta": fmt.Sprintf("%d.%d ", m.run, i)}); !yield(c, err) {
				return
			}
		}
	}
}

// ask records a call of the model, or a fetch of an answer by its name.
func (m *countingModel) ask(p *chat.Prompt, named bool) error {
	var name string
	ok, err := p.Checkpoint(&name)
	if err != nil {
		return err
	}
	if named && ok && m.run > 0 {
		return m.agent.record("fetched the stored answer %s", name)
	}
	return m.agent.record("model")
}
