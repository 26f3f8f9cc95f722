package chat_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// TestWorkerDurableRecordsAnswers runs a worker twice: the second run asks no model.
func TestWorkerDurableRecordsAnswers(t *testing.T) {
	var keys []string
	asked := 0
	steps := inSteps(`{"refund":true,"cents":1,"notes":["<&>"]}`, []string{"a:<&>", "a:<&>"}, []string{"a:2"})
	w := &chat.Worker[string, decision]{
		Name: "w", Durable: true, Tools: []chat.Tool{keyTool("a", 0, &keys, nil)},
		Model: promptModel(func(p *chat.Prompt) []chat.Chunk { asked++; return steps(p) }),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for range 2 {
			if out, err := w.Run(ctx, c, "go"); out.Cents != 1 || out.Notes[0] != "<&>" || err != nil || asked != 3 || len(keys) != 3 {
				t.Errorf("%+v, %v, asked %d times, %d calls", out, err, asked, len(keys))
			}
		}
		if _, err := w.Run(ctx, c, "another"); err != nil || asked != 6 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	})
}

// TestWorkerDurableRecordsNoErrors ends runs with an error. The next run asks only for the last answer again.
func TestWorkerDurableRecordsNoErrors(t *testing.T) {
	const valid = `{"refund":true,"cents":1}`
	for name, test := range map[string]struct {
		answers []string // "a" is a call, and "!" an error of the model
		max     int
		failed  int // answers of the run that fails
		want    string
	}{
		"an error of the model": {[]string{"a", "!", "a", valid}, 0, 2, "overloaded"},
		"an invalid answer":     {[]string{"a", "x", "x", "x", valid}, 0, 4, "not JSON"},
		"no more steps":         {[]string{"a", "a", valid}, 2, 2, "has not answered in 2 steps"},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			asked := 0
			w := &chat.Worker[string, decision]{
				Name: "w", Durable: true, MaxSteps: test.max, Tools: []chat.Tool{keyTool("a", 0, &keys, nil)},
				Model: streamModel(func(_ context.Context, yield func(chat.Chunk, error) bool) {
					asked++
					switch answer := test.answers[asked-1]; answer {
					case "a":
						yield(chat.ToolInput("call-"+string(rune('0'+asked)), "a", `{}`), nil)
					case "!":
						yield(chat.Chunk{}, &chat.ModelError{Provider: "double", Message: "overloaded"})
					default:
						yield(chat.TextDelta("t", answer), nil)
					}
				}),
			}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				if _, err := w.Run(ctx, c, "go"); err == nil || !strings.Contains(err.Error(), test.want) || asked != test.failed {
					t.Errorf("%v after %d answers, want %s after %d", err, asked, test.want, test.failed)
				}
				calls := len(keys)
				if out, err := w.Run(ctx, c, "go"); err != nil || out.Cents != 1 || asked != len(test.answers) {
					t.Errorf("the next run: %+v, %v, asked %d times, want %d", out, err, asked, len(test.answers))
				}
				if more := slices.Index(test.answers[test.failed:], "a") + 1; len(keys) != calls+more {
					t.Errorf("%d calls ran in the next run, want %d", len(keys)-calls, more)
				}
			})
		})
	}
}

// TestWorkerDurableWithOtherResults runs a worker again whose call has got another result since: an answer to the earlier result is
// not used.
func TestWorkerDurableWithOtherResults(t *testing.T) {
	var keys []string
	tool := keyTool("a", ledger.PolicyIdempotent, &keys, func(run int) error {
		if run == 1 {
			return errors.New("refused")
		}
		return nil
	})
	w := &chat.Worker[string, string]{
		Name: "w", Durable: true, Tools: []chat.Tool{tool}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
			calls := callsOf(p)
			if len(calls) > 0 && calls[len(calls)-1].Text("errorText") == "" {
				return says("done")
			}
			return []chat.Chunk{chat.ToolInput("call-"+string(rune('0'+len(calls))), "a", `{}`)}
		}),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for range 2 {
			if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil || len(keys) != 2 || keys[0] != keys[1] {
				t.Errorf("%q, %v, keys %q", out, err, keys)
			}
		}
	})
}

// TestWorkerDurableLargeAnswer has an answer that is too large to be recorded.
func TestWorkerDurableLargeAnswer(t *testing.T) {
	asked := 0
	w := &chat.Worker[string, string]{Name: "w", Durable: true, Model: promptModel(func(*chat.Prompt) []chat.Chunk {
		asked++
		return says(strings.Repeat("<", 3<<19))
	})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if _, err := w.Run(ctx, c, "go"); err == nil || !strings.Contains(err.Error(), "8388608") || asked != 1 {
			t.Errorf("%v after %d answers", err, asked)
		}
		w.Durable = false
		if out, err := w.Run(ctx, c, "go"); len(out) != 3<<19 || err != nil {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
}

// storingModel is a model of a provider that stores its answers. The first answer has no end.
type storingModel struct{ asked, resumed int }

// Stream implements [chat.Model].
func (m *storingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.asked++
		if err := p.SaveCheckpoint(ctx, "response"); err != nil || !yield(chat.TextDelta("t", "done"), nil) || m.asked > 1 {
			return
		}
		<-ctx.Done()
		yield(chat.Chunk{}, context.Cause(ctx))
	}
}

// ResumeStream implements [chat.ResumableModel].
func (m *storingModel) ResumeStream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.resumed++
		yield(chat.Chunk{}, chat.ErrNotResumable)
	}
}

// TestWorkerAnswerThatIsInterruptedIsBilledAgain interrupts an answer, as docs/workers.md describes: a worker resumes no answer.
func TestWorkerAnswerThatIsInterruptedIsBilledAgain(t *testing.T) {
	m := &storingModel{}
	w := &chat.Worker[string, string]{Name: "w", Durable: true, Model: m}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := w.Run(short, c, "go"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the interrupted run: %v", err)
		}
		for range 2 { // the second time the answer is recorded
			out, err := w.Run(ctx, c, "go")
			calls, failed := chat.CheckUsage(ctx, c.Storage())
			if out != "done" || errors.Join(err, failed) != nil || m.asked != 2 || m.resumed != 0 || len(calls) != 2 {
				t.Errorf("%q, %v: asked %d times, resumed %d, %d calls in the usage", out, errors.Join(err, failed), m.asked, m.resumed, len(calls))
			}
		}
	})
}
