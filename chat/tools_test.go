package chat_test

import (
	"context"
	"encoding/json"
	"errors"
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

// toolModel is a model that calls a tool before it counts. It never reuses the id of a call.
type toolModel struct {
	*countingState
	tool string
	runs map[string]int // runs of the tool per input
	once bool           // it makes no second call after a refusal
}

func (m *toolModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		call := m.calls.Add(1)
		called := slices.ContainsFunc(p.Partial.Parts, func(p chat.Part) bool { return p.Text("toolCallId") != "" })
		if !hasOutput(p.Partial) && !(m.once && called) {
			time.Sleep(50 * time.Millisecond)
			yield(chunk("tool-input-available", map[string]any{
				"toolCallId": fmt.Sprintf("call-%d", call), "toolName": m.tool, "input": map[string]any{"n": call},
			}), nil)
			return
		}
		partial := p.Partial
		for i := len(strings.Fields(partial.PlainText())); i < m.words; i++ {
			time.Sleep(100 * time.Millisecond)
			if ctx.Err() != nil || !yield(chunk("text-delta", map[string]any{
				"id": fmt.Sprintf("text-%d", call), "delta": fmt.Sprintf("%d.%d ", call, i),
			}), nil) {
				return
			}
		}
	}
}

func chunk(kind string, members map[string]any) chat.Chunk {
	c, err := chat.NewChunk(kind, members)
	if err != nil {
		panic(err)
	}
	return c
}

// hasOutput reports whether some call has a result.
func hasOutput(m chat.Message) bool { return outputs(m) > 0 }

func outputs(m chat.Message) (n int) {
	for _, p := range m.Parts {
		if p.Text("state") == "output-available" {
			n++
		}
	}
	return n
}

// toolModelClass is a class of agents that answer with a toolModel, and a tool of the server that counts its runs.
func toolModelClass(m *toolModel, approve bool) dohost.Class {
	return toolModelClassOf(m, approve, chat.Options{})
}

func toolModelClassOf(m *toolModel, approve bool, o chat.Options) dohost.Class {
	var by *chat.Approval
	if approve {
		by = &chat.Approval{}
	}
	return approvedToolClass(m, by, o)
}

// approvedToolClass is a class of a toolModel with a tool of the server, whose calls need the approval.
func approvedToolClass(m *toolModel, by *chat.Approval, o chat.Options) dohost.Class {
	return countingClassOf(m.countingState, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "stamp"}, Approve: by,
			Run: func(ctx context.Context, in json.RawMessage) (any, error) {
				m.runs[string(in)]++
				if err := dohost.Sleep(ctx, 50*time.Millisecond); err != nil {
					return nil, err
				}
				return "stamped", dohost.Add(ctx, p.Storage(), "stamps", 1)
			},
		}}})
	}, Options: o})
}

// checkRunsOnce checks that no call has run twice.
func (m *toolModel) checkRunsOnce() error {
	for in, n := range m.runs {
		if n > 1 {
			return fmt.Errorf("the tool ran %d times with %s", n, in)
		}
	}
	return nil
}

// checkStamped checks that there are as many results as complete runs of the tool, and at least one.
func checkStamped(ctx context.Context, h *dohosttest.Host) error {
	return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 0)
		if err != nil {
			return err
		}
		stamps, _, err := dohost.Get[int](ctx, p.Storage(), "stamps")
		if n := outputs(list[len(list)-1]); err != nil || n != stamps || n == 0 {
			return fmt.Errorf("the tool ran %d times, and %d outputs are there: %w", stamps, n, err)
		}
		return nil
	})
}

func (m *toolModel) scenario(all *testClients, class dohost.Class) dohosttest.Scenario {
	s := scenario(m.countingState, all, class)
	reset := s.Reset
	s.Reset = func() { reset(); m.runs = map[string]int{} }
	return s
}

func TestServerToolAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &toolModel{countingState: &countingState{words: 2}, tool: "stamp"}, &testClients{}
	s := m.scenario(all, toolModelClass(m, false))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		if err := all.checkAtEnd(ctx, h, 1, 2); err != nil {
			return err
		}
		return errors.Join(checkStamped(ctx, h), m.checkRunsOnce())
	}
	dohosttest.EveryPoint(t, s)
}

// answerCalls sends a request, answers all calls in a state, and reads until the last message comes from the assistant and has at least
// words words.
func (r *reader) answerCalls(ctx context.Context, state string, words int, ask map[string]any, answer func(call string) map[string]any) error {
	defer r.close()
	answered := map[string]bool{}
	wordCount := func() int {
		if len(r.messages) == 0 {
			return 0
		}
		return len(strings.Fields(r.messages[len(r.messages)-1].text()))
	}
	for wordCount() < words || r.messages[len(r.messages)-1].Role != "assistant" {
		if r.ws == nil {
			if err := r.connect(ctx); err != nil {
				return err
			}
			clear(answered)
			if !r.ended["one"].Done {
				r.ask(ctx, "one", "count", ask)
			}
		}
		if _, _, err := r.receive(ctx); err != nil {
			return err
		}
		for _, id := range r.calls(state) {
			if r.ws != nil && !answered[id] {
				answered[id] = true
				r.sendFrame(ctx, answer(id))
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "after"})
			}
		}
	}
	return nil
}

func TestClientToolAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &toolModel{countingState: &countingState{words: 2}, tool: "ask"}, &testClients{}
	s := m.scenario(all, toolModelClass(m, false))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		tools := map[string]any{"clientTools": []any{map[string]any{"name": "ask"}}}
		return all.join(h, "asker").answerCalls(ctx, "input-available", 2, tools, func(call string) map[string]any {
			return map[string]any{"type": "cf_agent_tool_result", "toolCallId": call, "toolName": "ask", "output": "yes", "autoContinue": true}
		})
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error { return all.checkAtEnd(ctx, h, 1, 2) }
	dohosttest.EveryPoint(t, s)
}

// A client's tool that needs an approval is sent to the client like any other once it is approved, and only once.
func TestApprovalOfClientTool(t *testing.T) {
	class := func(m *toolModel) dohost.Class {
		return countingClassOf(m.countingState, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "sign"}, Approve: &chat.Approval{Within: time.Hour}}}})
		}})
	}
	for name, approve := range map[string]bool{"approved": true, "denied": false} {
		t.Run(name, func(t *testing.T) {
			m := &toolModel{countingState: &countingState{words: 1}, tool: "sign", runs: map[string]int{}}
			runWithHost(t, class(m), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := connectIdle(t, h, "r")
				c := forgingClient{reader: r, t: t, h: h}
				r.ask(ctx, "one", "sign it", nil)
				r.waitEnd(t, "one")
				h.Advance(time.Second)
				call := r.calls("approval-requested")[0]
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call, "approved": approve, "autoContinue": true})
				if !approve {
					h.Advance(5 * time.Second)
					if p := c.call(call); p.Text("state") != "output-denied" || len(storedLines(t, h)) != 2 {
						t.Errorf("%s: %q", p.Text("state"), storedLines(t, h))
					}
					r.close()
					return
				}
				r.receiveUntil(t, func(f frame) bool { return f.Done && f.Outcome == "completed" })
				h.Advance(time.Second)
				h.Evict(testID, dohost.EndFence)
				h.Advance(5 * time.Second)
				if p := c.call(call); p.Text("state") != "input-available" || !strings.Contains(string(p.Member("approval")), `"approved":true`) {
					t.Errorf("%s, %s", p.Text("state"), p.Member("approval"))
				}
				r.close()
				h.Advance(2 * time.Hour) // an approved call does not expire
				r = connectIdle(t, h, "r")
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call, "approved": true, "autoContinue": true})
				h.Advance(5 * time.Second)
				if n := m.calls.Load(); n != 1 {
					t.Errorf("the model was asked %d times before there is a result", n)
				}
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": call, "output": "signed", "autoContinue": true})
				h.Advance(5 * time.Second)
				if p := c.call(call); p.Text("output") != "signed" || storedLines(t, h)[1] != "assistant: 2.0" {
					t.Errorf("%s: %q", p.Member("output"), storedLines(t, h))
				}
				r.close()
			})
		})
	}
}

// A client that sends a result and no other frame receives the continuation like one that probes: first the resuming
// frame, and chunks after it has acknowledged that. The other clients get the chunks live.
func TestContinuationIsSentToAnsweringClient(t *testing.T) {
	for name, tools := range map[string]string{"result": "ask", "approval": "stamp"} {
		t.Run(name, func(t *testing.T) {
			m := &toolModel{countingState: &countingState{words: 2}, tool: tools, runs: map[string]int{}}
			runWithHost(t, toolModelClass(m, true), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
				r.ask(ctx, "one", "count", map[string]any{"clientTools": []any{map[string]any{"name": "ask"}}})
				r.waitEnd(t, "one")
				other.waitEnd(t, "one")
				n := len(r.log)
				if call := r.calls("input-available"); len(call) > 0 {
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": call[0], "output": 1, "autoContinue": true})
				} else {
					call := r.calls("approval-requested")[0]
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call, "approved": true, "autoContinue": true})
				}
				first := r.receiveUntil(t, func(f frame) bool { return f.Type == "cf_agent_use_chat_response" })
				wantLines(t, "it heard", r.log[n:], "cf_agent_message_updated", "cf_agent_stream_resuming", "cf_agent_use_chat_response")
				if !first.Replay { // a chunk, or the frame that announces it
					t.Errorf("%+v", first)
				}
				r.waitEnd(t, first.ID)
				other.waitEnd(t, first.ID)
				for _, v := range []*view{r.views[first.ID], other.views[first.ID]} {
					if err := checkCounted(v.text, 2); err != nil {
						t.Error(err)
					}
				}
				if slices.Contains(other.log, "cf_agent_stream_resuming") {
					t.Errorf("the other heard %q", other.log)
				}
				r.close()
				other.close()
			})
		})
	}
}

func TestApprovalAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &toolModel{countingState: &countingState{words: 2}, tool: "stamp"}, &testClients{}
	s := m.scenario(all, toolModelClass(m, true))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		return all.join(h, "asker").answerCalls(ctx, "approval-requested", 2, nil, func(call string) map[string]any {
			return map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call, "approved": true, "autoContinue": true}
		})
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		if err := all.checkAtEnd(ctx, h, 1, 2); err != nil {
			return err
		}
		return errors.Join(checkStamped(ctx, h), m.checkRunsOnce())
	}
	dohosttest.EveryPoint(t, s)
}
