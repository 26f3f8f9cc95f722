package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// twoCallModel is a model that says a word, calls a tool twice in one answer, and says the other words when some call
// has a result. No two answers are equal.
type twoCallModel struct {
	*countingState
	mu            sync.Mutex
	ran           map[string]int // runs per input
	interruptions int
}

// answer is an answer of a twoCallModel.
type answer struct {
	Number int64
	Step   int // step of the message
	Said   int // number of words before the answer
	Calls  bool
}

// next returns the answer to a prompt.
func (m *twoCallModel) next(p *chat.Prompt) answer {
	partial := p.Partial
	a := answer{Number: m.calls.Add(1), Step: steps(p), Said: len(strings.Fields(partial.PlainText())), Calls: !hasOutput(partial)}
	return a
}

// steps returns the number of the step that the model is asked for.
func steps(p *chat.Prompt) (n int) {
	for _, part := range p.Partial.Parts {
		if part.Type() == "step-start" {
			n++
		}
	}
	if !p.Interrupted {
		n++
	}
	return n
}

// chunks returns the chunks of an answer. words is the number of words of the message, and done the number of words that have been said:
// the chunks do not contain them.
func (a answer) chunks(words, done int) (list []chat.Chunk) {
	for i := a.Said; i < words && !(a.Calls && i > 0); i++ {
		if i >= done {
			list = append(list, chat.TextDelta(fmt.Sprint("text-", a.Number), fmt.Sprintf("%d.%d ", a.Number, i)))
		}
	}
	for _, name := range []string{"a", "b"} {
		if id := fmt.Sprintf("%d%s", a.Number, name); a.Calls {
			list = append(list, chat.ToolInputStart(id, "stamp"), chat.ToolInputDelta(id, `{"id":`),
				chat.ToolInput(id, "stamp", fmt.Sprintf(`{"id":%q}`, id)))
		}
	}
	return list
}

func yieldAll(ctx context.Context, list []chat.Chunk, yield func(chat.Chunk, error) bool) {
	for _, c := range list {
		time.Sleep(100 * time.Millisecond)
		if ctx.Err() != nil || !yield(c, nil) {
			return
		}
	}
	time.Sleep(100 * time.Millisecond)
}

func (m *twoCallModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		a := m.next(p)
		time.Sleep(100 * time.Millisecond)
		if err := p.SaveCheckpoint(ctx, a); err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		yieldAll(ctx, a.chunks(m.words, 0), yield)
	}
}

// storedAnswerModel is a twoCallModel that stores every answer.
type storedAnswerModel struct{ *twoCallModel }

func (m storedAnswerModel) ResumeStream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		var a answer
		if ok, err := p.Checkpoint(&a); !ok || err != nil || a.Step != steps(p) {
			yield(chat.Chunk{}, errors.Join(err, chat.ErrNotResumable))
			return
		}
		partial := p.Partial
		yieldAll(ctx, a.chunks(m.words, len(strings.Fields(partial.PlainText()))), yield)
	}
}

// stamp is the tool.
func (m *twoCallModel) stamp(ctx context.Context, p *countingAgent, input json.RawMessage) (any, error) {
	var in struct{ ID string }
	if err := json.Unmarshal(input, &in); err != nil || in.ID == "" {
		return nil, fmt.Errorf("called with %s: %w", input, err)
	}
	m.mu.Lock()
	m.ran[in.ID]++
	m.mu.Unlock()
	if err := dohost.Sleep(ctx, 50*time.Millisecond); err != nil {
		return nil, err
	}
	return "stamped", dohost.Add(ctx, p.Storage(), "stamps", 1)
}

// class is a class of countingAgents that answer with a model.
func (m *twoCallModel) class(model chat.Model, o *chat.AnswerOptions) dohost.Class {
	return countingClassOf(m.countingState, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		var mine chat.AnswerOptions
		if o != nil {
			mine = *o
		}
		mine.Tools = []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "stamp"},
			Run:      func(ctx context.Context, in json.RawMessage) (any, error) { return m.stamp(ctx, p, in) },
		}}
		return chat.Answer(ctx, r, model, &mine)
	}, OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
		m.interruptions++
		return chat.RecoveryResume, nil
	}})
}

// atEveryPoint interrupts replies of a model everywhere.
func (m *twoCallModel) atEveryPoint(t *testing.T, model chat.Model, check func(calls []chat.Part) error) {
	all := &testClients{}
	s := scenario(m.countingState, all, m.class(model, nil))
	s.FullDisk = false // the tool's own write fails, and the model gets the error
	s.Places = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceDurable, dohost.PlaceAwaited}
	reset := s.Reset
	s.Reset = func() { reset(); m.ran, m.interruptions = map[string]int{}, 0 }
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		if err := errors.Join(all.checkAtEnd(ctx, h, 1, m.words), checkStamped(ctx, h)); err != nil {
			return err
		}
		calls, err := m.callsOf(ctx, h)
		return errors.Join(err, check(calls))
	}
	dohosttest.EveryPoint(t, s)
}

// callsOf returns the calls of the reply, and checks that each has run as its result says. Each interruption may have
// hit both calls of an answer.
func (m *twoCallModel) callsOf(ctx context.Context, h *dohosttest.Host) (calls []chat.Part, err error) {
	err = countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 1)
		for _, part := range list[0].Parts {
			if part.Type() == "tool-stamp" {
				calls = append(calls, part)
			}
		}
		return err
	})
	ran, interrupted := maps.Clone(m.ran), 0
	for _, c := range calls {
		id, why := c.Text("toolCallId"), c.Text("errorText")
		ok := false
		switch {
		case why == "":
			ok = ran[id] == 1
		case strings.Contains(why, "interrupted"):
			interrupted++
			ok = ran[id] <= 1
		case strings.Contains(why, "before it was run"):
			ok = ran[id] == 0 && c.Member("input") == nil // otherwise it would have an input
		}
		if !ok {
			err = errors.Join(err, fmt.Errorf("%s, with the input %s, ran %d times, and ends with %q", id, c.Member("input"), ran[id], why))
		}
		delete(ran, id)
	}
	if len(ran) > 0 || interrupted > 2*m.interruptions { // the two calls of an answer run concurrently
		err = errors.Join(err, fmt.Errorf("%v ran, and are not called; %d were interrupted by %d endings", ran, interrupted, m.interruptions))
	}
	return calls, err
}

// Complete calls of an interrupted answer run, and no result claims a run that did not happen.
func TestCallsThatWereCutOffAtEveryPoint(t *testing.T) {
	t.Parallel()
	m := &twoCallModel{countingState: &countingState{words: 3}}
	m.atEveryPoint(t, m, func([]chat.Part) error { return nil })
}

// The calls of a resumed answer are complete, and the model is not asked again, unless interruptions hit both
// calls: a model without a result calls again.
func TestToolCallsOfResumedAnswerAtEveryPoint(t *testing.T) {
	t.Parallel()
	m := &twoCallModel{countingState: &countingState{words: 3}}
	m.atEveryPoint(t, storedAnswerModel{m}, func(calls []chat.Part) error {
		var first string
		for len(calls) > 2 && calls[0].Member("output") == nil && calls[1].Member("output") == nil {
			if a, b := calls[0].Text("toolCallId"), calls[1].Text("toolCallId"); strings.TrimSuffix(a, "a") != strings.TrimSuffix(b, "b") {
				return fmt.Errorf("an answer calls %s and %s", a, b)
			}
			calls = calls[2:]
		}
		for i, c := range calls {
			id := c.Text("toolCallId")
			if i == 0 {
				first = strings.TrimSuffix(id, "a")
			}
			if want := first + string("ab"[i%2]); id != want {
				return fmt.Errorf("call %d is %s, want %s", i, id, want)
			}
		}
		if len(calls) != 2 {
			return fmt.Errorf("%d calls", len(calls))
		}
		return nil
	})
}

// A discarded answer is not resumed, even if the next answer has no id yet.
func TestAnswerDroppedIsNotResumed(t *testing.T) {
	m := &twoCallModel{countingState: &countingState{words: 3}}
	m.checkDropped(t, storedAnswerModel{m}, 2)
}

// checkDropped interrupts a reply several times, and drops the first answer once: its words must not return. The next
// interrupted answer has begun, and has no id.
func (m *twoCallModel) checkDropped(t *testing.T, model chat.Model, cuts int) {
	t.Helper()
	drops := 0
	class := countingClassOf(m.countingState, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, model, nil)
		},
		OnRecovery: func(_ *countingAgent, _ context.Context, c *chat.InterruptedReply) (chat.RecoveryAction, error) {
			if c.Partial.PlainText() == "" {
				return chat.RecoveryResume, nil
			}
			drops++
			return chat.RecoveryRestart, nil
		},
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		r.mayRestart = true
		asked := h.Client(func(ctx context.Context) error { return r.askAll(ctx, "one") })
		time.Sleep(250 * time.Millisecond)
		for range cuts {
			h.Evict(testID, dohost.EndFence)
			time.Sleep(50 * time.Millisecond)
		}
		if err := asked.Wait(); err != nil {
			t.Fatal(err)
		}
		text := r.messages[len(r.messages)-1].text()
		if drops != 1 || m.calls.Load() < 3 || strings.Contains(text, "1.") {
			t.Errorf("%q, after %d answers of which %d were dropped", text, m.calls.Load(), drops)
		}
	})
}

// lostAnswerModel is a twoCallModel. Its answers are lost while they are resumed, after a call.
type lostAnswerModel struct{ *twoCallModel }

func (m lostAnswerModel) ResumeStream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if yield(chat.ToolInput("lost", "stamp", `{"id":"lost"}`), nil) {
			yield(chat.Chunk{}, chat.ErrNotResumable)
		}
	}
}

// If an answer is lost while it is resumed, its calls so far replace it.
func TestToolCallsReplaceAnswerLostInResume(t *testing.T) {
	m := &twoCallModel{countingState: &countingState{words: 3}, ran: map[string]int{}}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{m.class(lostAnswerModel{m}, nil)}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		asked := h.Client(func(ctx context.Context) error { return r.askAll(ctx, "one") })
		time.Sleep(250 * time.Millisecond)
		h.Evict(testID, dohost.EndFence)
		if err := asked.Wait(); err != nil {
			t.Fatal(err)
		}
		calls, err := m.callsOf(t.Context(), h)
		if err != nil || len(calls) != 1 || m.ran["lost"] != 1 || m.calls.Load() != 2 {
			t.Errorf("%v; %d calls, %v ran, the model was asked %d times", err, len(calls), m.ran, m.calls.Load())
		}
	})
}

// The tools that the last answer calls run, though the model does not receive their results.
func TestToolsOfTheLastStepRun(t *testing.T) {
	m := &twoCallModel{countingState: &countingState{words: 3}, ran: map[string]int{}}
	class := m.class(m, &chat.AnswerOptions{MaxSteps: 1})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "asker")
		if err := r.askAll(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		calls, err := m.callsOf(t.Context(), h)
		if err != nil || len(calls) != 2 || m.calls.Load() != 1 {
			t.Errorf("%v; %d calls of %d answers", err, len(calls), m.calls.Load())
		}
		if err := checkStamped(t.Context(), h); err != nil {
			t.Error(err)
		}
	})
}
