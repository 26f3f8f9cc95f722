package randask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"time"

	"github.com/dohost/dohost/chat"
)

var errModel = errors.New("the model fails")

// silence bounds the time of a silent agent.
const silence = 400 * time.Second

// answerer is the model of an agent. It answers the last message of its prompt alone: its questions, step by step, and then a text
// with their results. So the answer is a function of that message and the results.
type answerer struct{ w *Observer }

// Stream answers a prompt.
func (a *answerer) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	now := ctx.Value(cycleKey{}).(*cycle)
	t, _ := parse[task](p.Messages[len(p.Messages)-1].PlainText())
	results := map[string]string{}
	for _, part := range p.Partial.Parts {
		if id := part.Text("toolCallId"); id != "" {
			var out struct{ Response string }
			_ = json.Unmarshal(part.Member("output"), &out)
			results[id] = out.Response + part.Text("errorText")
		}
	}
	return func(yield func(chat.Chunk, error) bool) {
		step, got := 0, answer{Of: t.Name}
		for ; step < len(t.Asks); step++ {
			n := len(got.Got)
			for i, c := range t.Asks[step] {
				if text, ok := results[callID(step, i)]; ok {
					got.Got = append(got.Got, result{c.Task.Name, text})
				}
			}
			if len(got.Got) == n {
				break
			}
		}
		a.w.asksModel(now, t, step, got)
		p.ReportUsage(ctx, chat.Usage{InputTokens: callTokens})
		if a.w.fails(t, failModel) {
			yield(chat.Chunk{}, errModel)
			return
		}
		if a.w.fails(t, failBudget) {
			yield(chat.Chunk{}, &chat.BudgetError{Scope: "day"})
			return
		}
		if step < len(t.Asks) {
			pause(ctx, 50*time.Millisecond+offset(t), nil)
			for i, c := range t.Asks[step] {
				if !yield(chat.ToolInput(callID(step, i), c.Tool, encode(map[string]any{"message": encode(c.Task), "object": c.Object})), nil) {
					return
				}
			}
			return
		}
		if err := a.think(ctx, t); err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		yield(chat.TextDelta("t", encode(got)), nil)
	}
}

func callID(step, i int) string { return fmt.Sprint("call-", step, "-", i) }

// offset keeps the timers of tasks apart.
func offset(t task) time.Duration { return apart(int(crc32.ChecksumIEEE([]byte(t.Name)) % 997)) }

// think passes the time before an answer.
func (a *answerer) think(ctx context.Context, t task) error {
	if t.Silent && !pause(ctx, silence+offset(t), a.w.silent()) {
		return context.Cause(ctx)
	}
	if !pause(ctx, time.Duration(t.Late)*time.Millisecond+offset(t), nil) {
		return context.Cause(ctx)
	}
	return nil
}

// pause waits, outside of any event, until the end of the time or of the channel; it returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration, end <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-end:
		return true
	case <-ctx.Done():
		return false
	}
}
