package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

func TestDropIncludesTheCheckpoint(t *testing.T) {
	c := &countingState{words: 2}
	var found []string
	class := countingClassOf(c, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			var s string
			ok, err := r.Checkpoint(&s)
			found = append(found, strings.TrimSpace(fmt.Sprintln(ok, err)))
			if len(found) > 1 {
				return r.Say(ctx, "done")
			}
			if err := r.SaveCheckpoint(ctx, "old"); err != nil {
				return err
			}
			if err := r.Say(ctx, "a "); err != nil {
				return err
			}
			return dohost.Sleep(ctx, time.Minute)
		},
		OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
			return chat.RecoveryRestart, nil
		},
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		r.mayRestart = true
		asked := h.Client(func(ctx context.Context) error { return r.askAll(ctx, "one") })
		time.Sleep(250 * time.Millisecond)
		h.Evict(testID, dohost.EndFence)
		_ = asked.Wait() // the client has received dropped chunks
		if len(found) != 2 || found[1] != "false <nil>" {
			t.Errorf("found %q", found)
		}
	})
}

// truncatedModel is a storedAnswerModel. The connection of its second answer ends before the answer has an id.
type truncatedModel struct{ storedAnswerModel }

func (m truncatedModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if m.calls.Load() == 1 {
		m.calls.Add(1)
		return func(yield func(chat.Chunk, error) bool) {
			time.Sleep(50 * time.Millisecond)
			yield(chat.Chunk{}, &chat.ModelError{Truncated: true})
		}
	}
	return m.storedAnswerModel.Stream(ctx, p)
}

func TestAnswerDroppedIsNotResumedInSameIncarnation(t *testing.T) {
	m := &twoCallModel{countingState: &countingState{words: 3}}
	m.checkDropped(t, truncatedModel{storedAnswerModel{m}}, 1)
}

// providerToolModel lets its provider search, and then says a word.
type providerToolModel struct{ *countingState }

func (m providerToolModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		n := m.calls.Add(1)
		id := fmt.Sprint("s", n)
		if !yield(chunk("tool-input-available", map[string]any{
			"toolCallId": id, "toolName": "search", "input": map[string]any{}, "providerExecuted": true}), nil) {
			return
		}
		time.Sleep(100 * time.Millisecond)
		if !yield(chunk("tool-output-available", map[string]any{"toolCallId": id, "output": "x", "providerExecuted": true}), nil) {
			return
		}
		yield(chat.TextDelta("t", "found "), nil)
	}
}

func TestToolCallOfProviderIsInterrupted(t *testing.T) {
	m := providerToolModel{&countingState{words: 1}}
	class := countingClassOf(m.countingState, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error { return chat.Answer(ctx, r, m, nil) },
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		asked := h.Client(func(ctx context.Context) error { return r.askAll(ctx, "one") })
		time.Sleep(50 * time.Millisecond)
		h.Evict(testID, dohost.EndFence)
		err := asked.Wait()
		if text := r.messages[len(r.messages)-1].text(); err != nil || m.calls.Load() != 2 || text != "found " {
			t.Errorf("%v; %q after %d answers", err, text, m.calls.Load())
		}
	})
}

// threeCallModel calls three tools in one answer: one needs an approval, the other two are calls of one tool without.
type threeCallModel struct{ *countingState }

func (m threeCallModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.calls.Add(1)
		if len(p.Partial.Parts) > 0 {
			yield(chat.TextDelta("t", "well "), nil)
			return
		}
		for _, id := range []string{"ask", "a", "b"} {
			name := "stamp"
			if id == "ask" {
				name = "ask"
			}
			if !yield(chat.ToolInput(id, name, `{}`), nil) {
				return
			}
		}
	}
}

func threeCallClass(m threeCallModel, ran *[]string) dohost.Class {
	run := func(name string) func(context.Context, json.RawMessage) (any, error) {
		return func(ctx context.Context, _ json.RawMessage) (any, error) {
			*ran = append(*ran, name)
			return "stamped", dohost.Sleep(ctx, 200*time.Millisecond)
		}
	}
	return countingClassOf(m.countingState, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{
			{ToolSpec: chat.ToolSpec{Name: "ask"}, Approve: &chat.Approval{}, Run: run("ask")},
			{ToolSpec: chat.ToolSpec{Name: "stamp"}, Run: run("stamp")},
		}})
	}})
}

func TestToolCallRunsWhileAnotherAwaitsApproval(t *testing.T) {
	m := threeCallModel{&countingState{words: 1}}
	var ran []string
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{threeCallClass(m, &ran)}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		asked := h.Client(func(ctx context.Context) error { return r.askAll(ctx, "one") })
		time.Sleep(100 * time.Millisecond)
		h.Evict(testID, dohost.EndFence)
		err := asked.Wait()
		if err != nil || !slices.Equal(ran, []string{"stamp", "stamp"}) || m.calls.Load() != 1 {
			t.Errorf("%v; %v ran, after %d answers", err, ran, m.calls.Load())
		}
		if waits := r.calls("approval-requested"); !slices.Equal(waits, []string{"ask"}) {
			t.Errorf("%v wait", waits)
		}
	})
}

// The continuation after an approval is interrupted while the tool runs.
func TestToolCallInterruptedAfterApprovalEndsWithError(t *testing.T) {
	m := &toolModel{countingState: &countingState{words: 1}, tool: "stamp", runs: map[string]int{}}
	runWithHost(t, toolModelClass(m, true), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.waitEnd(t, "one")
		id := r.calls("approval-requested")[0]
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": true})
		time.Sleep(20 * time.Millisecond) // it runs for 50
		h.Evict(testID, dohost.EndFence)
		var bodies []string
		for range 40 {
			if r.ws == nil {
				if err := r.connect(ctx); err != nil {
					t.Fatal(err)
				}
			}
			f, connected, err := r.receive(ctx)
			if err != nil {
				t.Log(err)
				break
			}
			if connected && strings.HasPrefix(f.ID, "cont_") && f.Type == "cf_agent_use_chat_response" {
				bodies = append(bodies, fmt.Sprintf("%d replay=%t %s", *orZero(f.Seq), f.Replay, f.Body))
			}
			if f.Done && strings.HasPrefix(f.ID, "cont_") {
				break
			}
		}
		r.close()
		all := strings.Join(bodies, "\n")
		start, call, out := strings.Index(all, `"start"`), strings.Index(all, `"tool-input-available"`), strings.Index(all, `"tool-output-error"`)
		if start < 0 || call < start || out < call || len(m.runs) != 1 || m.checkRunsOnce() != nil {
			t.Errorf("%v; its frames are\n%s", m.runs, all)
		}
	})
}

func orZero(n *uint64) *uint64 {
	if n == nil {
		return new(uint64)
	}
	return n
}

// An approved call runs once, even if its continuation is dropped.
func TestToolCallAfterApprovalRunsOnceDespiteDrop(t *testing.T) {
	for name, wait := range map[string]time.Duration{"while it runs": 20 * time.Millisecond, "after its outcome": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			m := &toolModel{countingState: &countingState{words: 5}, tool: "stamp", runs: map[string]int{}}
			class := countingClassOf(m.countingState, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
				return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{{
					ToolSpec: chat.ToolSpec{Name: "stamp"}, Approve: &chat.Approval{},
					Run: func(ctx context.Context, in json.RawMessage) (any, error) {
						m.runs[string(in)]++
						return "stamped", dohost.Sleep(ctx, 50*time.Millisecond)
					},
				}}})
			}, OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
				return chat.RecoveryRestart, nil
			}})
			runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := connectIdle(t, h, "r")
				r.ask(ctx, "one", "count", nil)
				r.waitEnd(t, "one")
				id := r.calls("approval-requested")[0]
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": true})
				time.Sleep(20 * time.Millisecond) // it runs for 50
				time.Sleep(wait)
				h.Evict(testID, dohost.EndFence)
				r.close()
				time.Sleep(2 * time.Minute)
				if len(m.runs) != 1 || m.checkRunsOnce() != nil {
					t.Errorf("%v ran", m.runs)
				}
			})
		})
	}
}
