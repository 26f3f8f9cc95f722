package chat_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// bookedModel is a provider with a book of the calls that it has seen, outside of the object. Each call has a name, which it reports
// with its usage before its first word and after its last. With stored, it stores the answers.
type bookedModel struct {
	tool   string // called in the first answer
	stored bool
	book   *callBook
}

// callBook is the book of a run.
type callBook struct {
	mu      sync.Mutex
	seen    map[string]string // the last word of a complete answer, by the name of the call
	resumed int
}

func (b *callBook) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.resumed = map[string]string{}, 0
}

const bookedWords = 3

// bookedAnswer is an answer of the model, as its checkpoint.
type bookedAnswer struct {
	Name string
	Step int
}

// bookedUsage returns the usage of an answer, given its number of words.
func bookedUsage(name string, words int) chat.Usage {
	return chat.Usage{Model: name, InputTokens: 1000, OutputTokens: int64(1000 * words)}
}

// Stream implements [chat.Model].
func (m *bookedModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	m.book.mu.Lock()
	a := bookedAnswer{fmt.Sprint("call-", len(m.book.seen)), steps(p)}
	m.book.seen[a.Name] = ""
	m.book.mu.Unlock()
	return func(yield func(chat.Chunk, error) bool) {
		if m.stored {
			if err := p.SaveCheckpoint(ctx, a); err != nil {
				yield(chat.Chunk{}, err)
				return
			}
		}
		m.answer(ctx, p, a, 0, yield)
	}
}

// answer yields the words of an answer from one on, and its call.
func (m *bookedModel) answer(ctx context.Context, p *chat.Prompt, a bookedAnswer, from int, yield func(chat.Chunk, error) bool) {
	p.ReportUsage(ctx, bookedUsage(a.Name, from))
	for i := from; i < bookedWords; i++ {
		time.Sleep(50 * time.Millisecond)
		if ctx.Err() != nil || !yield(chat.TextDelta("t", fmt.Sprintf("%s.%d ", a.Name, i)), nil) {
			return
		}
	}
	if id := a.Name + "-tool"; m.tool != "" && (len(callsOf(p)) == 0 || callsOf(p)[0].Text("toolCallId") == id) && !yield(chat.ToolInput(id, m.tool, `{"in":"x"}`), nil) {
		return
	}
	p.ReportUsage(ctx, bookedUsage(a.Name, bookedWords))
}

// resumableBookedModel is a bookedModel that resumes its answers.
type resumableBookedModel struct{ *bookedModel }

// ResumeStream implements [chat.ResumableModel].
func (m resumableBookedModel) ResumeStream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		var a bookedAnswer
		if ok, err := p.Checkpoint(&a); err != nil || !ok || a.Step != steps(p) {
			yield(chat.Chunk{}, errors.Join(err, chat.ErrNotResumable))
			return
		}
		m.book.mu.Lock()
		m.book.resumed++
		m.book.mu.Unlock()
		m.answer(ctx, p, a, strings.Count(p.Partial.PlainText(), a.Name+"."), yield)
	}
}

// check compares the rows of the calls with the book. Each call that the provider has seen has one row. A row without a name is that of
// a call that an ending has kept from the provider, or from its first report.
func (b *callBook) check(ctx context.Context, p *countingAgent) error {
	calls, err := chat.CheckUsage(ctx, p.Storage())
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(calls) < len(b.seen) {
		return fmt.Errorf("%d rows of %d calls that the provider has seen", len(calls), len(b.seen))
	}
	names := map[string]bool{}
	for _, c := range calls {
		_, seen := b.seen[c.Model]
		switch {
		case c.Model == "" && c.Outcome != chat.ModelCallInterrupted, c.Model != "" && !seen:
			return fmt.Errorf("the provider has not seen %+v", c)
		case c.Model != "" && names[c.Model]:
			return fmt.Errorf("two rows have the call %s", c.Model)
		case c.InputTokens == 0:
			return fmt.Errorf("the call counts nothing: %+v", c)
		case c.Outcome == chat.ModelCallCompleted && (c.Usage != bookedUsage(c.Model, bookedWords)):
			return fmt.Errorf("the complete call is %+v", c)
		case c.Outcome == chat.ModelCallRunning:
			return fmt.Errorf("the call is running: %+v", c)
		}
		names[c.Model] = true
	}
	return nil
}

// usageScenario ends an agent at all points of a reply of two steps. Its tool is a worker with the same provider.
func usageScenario(b *callBook, m chat.Model, worker *bookedModel, all *testClients) dohosttest.Scenario {
	w := &chat.Worker[struct {
		In string `json:"in"`
	}, string]{Name: "helper", Model: worker}
	class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{w.Tool()} })
	s := variant(scenario(&countingState{}, all, class))
	reset := s.Reset
	s.Reset = func() { reset(); b.reset() }
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			return errors.Join(b.check(ctx, p), p.Idle(ctx))
		})
	}
	return s
}

// TestUsageAtEveryPoint compares the recorded usage with the book of a provider, which is asked again after an interruption.
func TestUsageAtEveryPoint(t *testing.T) {
	t.Parallel()
	b := &callBook{}
	s := usageScenario(b, &bookedModel{tool: "helper", book: b}, &bookedModel{book: b}, &testClients{})
	dohosttest.EveryPoint(t, s)
}

// TestUsageOfResumedAnswersAtEveryPoint does so with a provider that stores its answers: a resumed answer is not another call.
func TestUsageOfResumedAnswersAtEveryPoint(t *testing.T) {
	t.Parallel()
	b := &callBook{}
	m := resumableBookedModel{&bookedModel{tool: "helper", stored: true, book: b}}
	s := usageScenario(b, m, &bookedModel{book: b}, &testClients{})
	check, resumed := s.Check, 0
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		resumed += b.resumed
		return check(ctx, h)
	}
	dohosttest.EveryPoint(t, s)
	if resumed == 0 && pointtest.Full() { // a sample may have no point during an answer
		t.Error("no answer was resumed")
	}
}
