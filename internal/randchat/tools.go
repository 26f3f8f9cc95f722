package randchat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// The tools of a model: one that the server runs, one that a client runs, and one that the server runs once a client has
// approved the call. The id of a call ends in the name of its tool.
const (
	serverTool   = "server"
	clientTool   = "client"
	approvalTool = "approval"
)

// callID returns the id of the call before word i of the reply to a request.
func callID(request string, i int, w Word) string {
	return fmt.Sprintf("%s-%d-%s", request, i, w.Before[len("Call "):])
}

func toolOf(call string) string { return call[strings.LastIndex(call, "-")+1:] }

// origin returns the request that a message was the first reply to, or fallback if the message is empty.
func (m *message) origin(fallback string) string {
	if len(m.Calls) > 0 {
		id, _, _ := strings.Cut(m.Calls[0].ID, "-")
		return id
	}
	if id, n, _ := parseWords(m.Text); n > 0 {
		return id
	}
	return fallback
}

// model yields the words and the calls of a plan from those on that the message has.
type model struct {
	request string
	plan    Plan
}

// Stream implements [chat.Model].
func (m *model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		partial, err := messageOf(p.Partial)
		if err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		_, n, _ := parseWords(partial.Text)
		for i := n; i < len(m.plan.Words); i++ {
			w := m.plan.Words[i]
			switch {
			case w.Before == Fail:
				yield(chat.Chunk{}, publicFailure(m.request))
				return
			case w.Before == Sleep:
				select {
				case <-time.After(time.Duration(w.N) * time.Millisecond):
				case <-ctx.Done():
					return
				}
			case strings.HasPrefix(string(w.Before), "Call "):
				id := callID(m.request, i, w)
				if !slices.ContainsFunc(partial.Calls, func(c call) bool { return c.ID == id }) {
					yield(chat.ToolInput(id, toolOf(id), fmt.Sprintf(`{"call":%q,"n":%d}`, id, w.N)), nil)
					return
				}
			}
			if !yield(chat.TextDelta(fmt.Sprint("text ", len(partial.Calls)), word(m.request, i)), nil) {
				return
			}
		}
	}
}

func messageOf(m chat.Message) (message, error) {
	list, err := messagesOf([]chat.Message{m})
	if err != nil {
		return message{}, err
	}
	return list[0], nil
}

// answer answers with the model of a plan.
func (x *run) answer(ctx context.Context, origin string, p Plan) error {
	spec := func(name string) chat.ToolSpec { return chat.ToolSpec{Name: name} }
	return chat.Answer(ctx, x.r, &model{origin, p}, &chat.AnswerOptions{Tools: []chat.Tool{
		{ToolSpec: spec(serverTool), Run: x.tool},
		{ToolSpec: spec(clientTool)},
		{ToolSpec: spec(approvalTool), Run: x.tool, Approve: &chat.Approval{}},
	}})
}

func toolKey(call string) string { return "tool/" + call }

var errTool = errors.New("the tool fails")

// tool runs a call, which is counted in the agent's storage in the batch of its result, if it does not wait.
func (a *machine) tool(ctx context.Context, input json.RawMessage) (any, error) {
	var in struct {
		Call string
		N    int
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	a.w.Compared()
	if n := a.w.try("call " + in.Call); n > 1 {
		a.w.Faultf("the call %s runs again", in.Call)
	}
	if toolOf(in.Call) == approvalTool && !a.w.mayRun(in.Call) {
		a.w.Faultf("the call %s runs, and was not approved", in.Call)
	}
	n, err := get[int](ctx, a, toolKey(in.Call))
	if err != nil {
		return nil, err
	}
	if err := dohost.Put(ctx, a.Storage(), toolKey(in.Call), n+1); err != nil {
		return nil, err
	}
	switch in.N % 4 {
	case 1:
		return nil, errTool
	case 2:
		return "late", dohost.Sleep(ctx, time.Duration(in.N)*10*time.Millisecond)
	}
	return "done", nil
}

// answers are the answers that clients have sent for a call.
type answers struct {
	outputs          []string // as JSON
	approved, denied bool
	state, output    string // of its result, which never changes; empty before
}

func (w *Observer) answersLocked(call string) *answers {
	if w.answers[call] == nil {
		w.answers[call] = &answers{}
	}
	return w.answers[call]
}

// mayRun reports whether a client has approved a call.
func (w *Observer) mayRun(call string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.answersLocked(call)
	return a.approved && a.state == ""
}

// answerFrame returns the frame of a client's answer to a call on its page, or nil if none waits.
func (w *Observer) answerFrame(c *client, in Instr) map[string]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	var waiting []call
	for _, m := range c.list {
		for _, k := range m.Calls {
			if toolOf(k.ID) == clientTool || toolOf(k.ID) == approvalTool {
				waiting = append(waiting, k)
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	k := waiting[len(waiting)-1-in.K%len(waiting)]
	c.answering, w.answered = true, true
	a := w.answersLocked(k.ID)
	f := map[string]any{"toolCallId": k.ID, "autoContinue": in.N%5 > 0}
	if toolOf(k.ID) == approvalTool {
		a.approved, a.denied = a.approved || in.N%3 > 0, a.denied || in.N%3 == 0
		f["type"], f["approved"] = "cf_agent_tool_approval", in.N%3 > 0
		return f
	}
	output := fmt.Sprintf("result %d", w.tickLocked())
	a.outputs = append(a.outputs, fmt.Sprintf("%q", output))
	f["type"], f["toolName"], f["output"] = "cf_agent_tool_result", clientTool, output
	return f
}

// checkCallsLocked compares the calls of a message with the answers that were sent. A result never changes.
func (w *Observer) checkCallsLocked(m *message, source string) {
	for _, k := range m.Calls {
		if !strings.HasPrefix(k.State, "output-") {
			continue
		}
		a := w.answersLocked(k.ID)
		if a.state == "" {
			a.state, a.output = k.State, k.Output
		}
		sent := toolOf(k.ID) != clientTool || k.State != "output-available" || slices.Contains(a.outputs, k.Output)
		if a.state != k.State || a.output != k.Output || !sent || k.State == "output-denied" && !a.denied {
			w.Faultf("%s has the call %v, which had the result %s %s; clients have answered %+v", source, k, a.state, a.output, *a)
		}
	}
}

// checkCalls compares the calls of the conversation, which is at rest, with the runs of their tools.
func (a *machine) checkCalls(ctx context.Context, list []message) error {
	for _, m := range list {
		for _, k := range m.Calls {
			if toolOf(k.ID) == clientTool {
				continue
			}
			n, err := get[int](ctx, a, toolKey(k.ID))
			if err != nil {
				return err
			}
			a.w.Compared()
			runs := a.w.triesOf("call " + k.ID)
			switch {
			case n > runs, n > 1, k.State == "output-available" && n != 1, k.State == "output-denied" && runs > 0:
				a.w.Faultf("at rest the call %v has run %d times, and the agent has %d", k, runs, n)
			case toolOf(k.ID) == serverTool && !strings.HasPrefix(k.State, "output-"):
				a.w.Faultf("at rest the call %v has no result", k)
			}
		}
	}
	return nil
}

// waits reports whether a message has a call without a result.
func (m *message) waits() bool {
	return slices.ContainsFunc(m.Calls, func(k call) bool { return !strings.HasPrefix(k.State, "output-") })
}

// continuation returns the request of a continuation, which the agent makes when a call has its answer.
func (w *Observer) continuationLocked(id string) *request {
	q := w.requestLocked(id)
	if q == nil && strings.HasPrefix(id, "cont_") && w.answered {
		now := w.tickLocked()
		// It may have ended long ago.
		q = &request{id: id, continues: true, plan: Plan{Model: true}, sent: now, acked: now, over: time.Unix(0, 0)}
		if slices.ContainsFunc(w.deletions, func(d *deletion) bool { return d.clears }) {
			q.stopped, q.halted = now, true
		}
		q.number = len(w.requests)
		w.requests = append(w.requests, q)
	}
	return q
}

// begun records the request that a handler is called for, and returns a copy of it with the plan of its message.
func (w *Observer) begun(id, origin string) (q request, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.continuationLocked(id)
	if known == nil {
		return q, false
	}
	if first := w.requestLocked(origin); known.continues && first != nil {
		known.plan, known.origin = first.plan, origin
		first.continued = true
	}
	return *known, true
}
