// Package chattest checks whether the policy of a [chat.Tool] is true.
//
// A tool declares how a chat treats a call that was interrupted. A declaration may be false: a tool with
// [ledger.PolicyIdempotent] and a service that charges twice for one key. [Tool] ends the incarnation at every point of two calls, and
// compares the recorded results with the effects at the service:
//
//	func TestBookingTool(t *testing.T) {
//		hotel := &dohosttest.FakeService{Idempotent: true}
//		chattest.Tool(t, bookingTool(hotel), Stay{Hotel: "Ritz", Nights: 2}, hotel)
//	}
package chattest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/policytest"
	"github.com/dohost/dohost/ledger"
)

// Tool makes a chat agent answer with a model that calls the tool twice, one call after the other and with the same input, and
// ends the incarnation at every point, as [dohosttest.EveryPoint] does. input is the input of the calls; it is encoded as JSON.
// The tool runs without its Approve. service has the effects of the tool, and decides alone about each call:
//
//   - PolicyAtMostOnce, or no policy: at most one effect, and one effect if the result is recorded.
//   - PolicyIdempotent: one effect, and a recorded result, unless Run returned an error.
//   - PolicyReconcile: likewise; the call may also be unknown if Find did not decide.
//
// Two calls are two intended effects, so a tool that derives its key from the input alone fails: use the key of
// [chat.CallFrom].
//
// Tool fails t if a run contradicts the policy; if Find returns Done without an effect or without a result like those of Run,
// or NotDone after an effect; if an error that is marked with [ledger.NoEffect] had an effect; and if the service has no effect
// in any run. A failure names the function, and ends with a line that replays only that run. t.Log gets the number of calls that
// ended as unknown, and of those without an effect.
//
// The tool should request its effect from service in an Await, with the context that the Await gets. To end an incarnation
// between the effect and its answer, a service of your own calls [dohosttest.EffectPoint]. To test the errors of the tool, set
// [dohosttest.FakeService.Fail]. Call Tool once in a test, and not in a bubble of testing/synctest.
func Tool(t *testing.T, tool chat.Tool, input any, service dohosttest.Service) {
	t.Helper()
	failures, summary := explore(t, tool, input, service, nil)
	for _, text := range failures {
		t.Error(text)
	}
	if summary != "" {
		t.Log(summary)
	}
}

// calls is the number of calls of a run.
const calls = 2

// explore is Tool without output, at some places; nil means all.
func explore(
	t *testing.T, tool chat.Tool, input any, service dohosttest.Service, places []dohost.Place,
) (failures []string, summary string) {
	data, err := json.Marshal(input)
	switch {
	case err != nil:
	case tool.Run == nil:
		err = errors.New("the tool has no Run: a client runs it")
	case tool.External != nil:
		err = errors.New("the tool is external: another party completes its calls")
	}
	if err != nil {
		return []string{fmt.Sprintf("chattest: tool %q: %v", tool.Name, err)}, ""
	}
	s := &policytest.Subject{
		Name: fmt.Sprintf("tool %q", tool.Name), Policy: tool.Policy, Service: service, Calls: calls, Places: places,
		Site: policytest.SiteOf(tool.Run), FindSite: policytest.SiteOf(tool.Find),
	}
	if s.Policy == 0 {
		s.Policy = ledger.PolicyAtMostOnce
	}
	model := model{tool: tool.Name, input: string(data)}
	tools := []chat.Tool{observed(s, tool)}
	s.Class = chat.Bind(probes, func(_ context.Context, a *chat.Agent[struct{}]) (*probe, error) { return &probe{a}, nil },
		&chat.Handlers[probe, struct{}]{Reply: func(_ *probe, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, model, &chat.AnswerOptions{Tools: tools})
		}})
	s.Run, s.Outcomes, s.SettleTime = ask, outcomes, time.Second
	return s.Explore(t)
}

// observed returns a tool whose runs are recorded.
func observed(s *policytest.Subject, tool chat.Tool) chat.Tool {
	was := tool
	tool.Approve = nil
	if was.Run != nil {
		tool.Run = func(ctx context.Context, input json.RawMessage) (result any, err error) {
			call, _ := chat.CallFrom(ctx)
			s.Call(ctx, call.ID, ledger.ProvesNoEffect, func(ctx context.Context) (any, error) {
				result, err = was.Run(ctx, input)
				return result, err
			})
			return result, err
		}
	}
	if was.Find != nil {
		tool.Find = func(ctx context.Context, input json.RawMessage) (result any, answer ledger.Answer, err error) {
			call, _ := chat.CallFrom(ctx)
			s.Find(ctx, call.ID, nil, func(ctx context.Context) (any, ledger.Answer, error) {
				result, answer, err = was.Find(ctx, input)
				return result, answer, err
			})
			return result, answer, err
		}
	}
	return tool
}

// model calls a tool, in an answer for each call, and then says a word.
type model struct{ tool, input string }

// Stream implements [chat.Model]. A call is one chunk, so an interruption leaves none without its input.
func (m model) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		made := 0
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				made++
			}
		}
		switch {
		case made < calls:
			yield(chat.ToolInput(fmt.Sprintf("call-%d", made+1), m.tool, m.input), nil)
		case p.Partial.PlainText() == "":
			yield(chat.TextDelta("text", "done"), nil)
		}
	}
}

// probe is the agent.
type probe struct{ *chat.Agent[struct{}] }

const probes dohost.Namespace[probe] = "chattest"

// poll is the time between two polls of the request by the client, in virtual time.
const poll = 5 * time.Second

// ask is the client. It returns after the end of the reply.
func ask(ctx context.Context, h *dohosttest.Host) error {
	of := probes.Get(h, "1")
	err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		return of.Do(ctx, func(ctx context.Context, p *probe) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("user", chat.RoleUser, "go")}, &chat.AskOptions{ID: "ask"})
			return err
		})
	})
	for err == nil && ctx.Err() == nil {
		h.Advance(poll)
		// An error is the end of a process; the next process answers.
		_, status, _, err := rowsOf(ctx, h)
		if err == nil && status != string(chat.StatusQueued) && status != string(chat.StatusRunning) {
			return nil
		}
	}
	return errors.Join(err, context.Cause(ctx))
}

// rowsOf returns the states of the calls, and the status of the request with its description.
func rowsOf(ctx context.Context, h *dohosttest.Host) (states map[string]string, status, text string, err error) {
	states = map[string]string{}
	for r, err := range h.Host().Details(ctx, probes.Get(h, "1").ID()) {
		switch {
		case err != nil:
			return nil, "", "", err
		case r.Kind == "call":
			states[r.ID] = r.State
		case r.Kind == "request":
			status, text = r.State, r.Text
		}
	}
	return states, status, text, nil
}

// outcomes returns the outcomes of the calls, and an error if the reply has not completed.
func outcomes(ctx context.Context, h *dohosttest.Host) (list []policytest.Outcome, err error) {
	states, status, text, err := rowsOf(ctx, h)
	if err != nil {
		return nil, err
	}
	if status != string(chat.StatusCompleted) {
		return nil, fmt.Errorf("the reply is %s: %s", status, text)
	}
	err = probes.Get(h, "1").Do(ctx, func(ctx context.Context, p *probe) error {
		messages, err := chat.Messages(ctx, p, 1)
		if err != nil {
			return err
		}
		for _, m := range messages {
			for _, part := range m.Parts {
				if id := part.Text("toolCallId"); id != "" {
					list = append(list, policytest.Outcome{ID: id, Status: states[id], Text: part.Text("errorText")})
				}
			}
		}
		return nil
	})
	return list, err
}
