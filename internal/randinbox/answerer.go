package randinbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

var errModel = errors.New("the model fails")

// answerer is the model of an agent. Its answer has the numbers of the tasks in its prompt.
type answerer struct {
	w     *Observer
	stamp bool // it calls the tool before it answers
}

// apart returns a time that keeps timers of programs apart: timers of one moment have no order.
func apart(n int) time.Duration { return time.Duration(1+n) * 13 * time.Microsecond }

// pause waits, outside of any event, unless ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Stream answers a prompt, by the tasks of the cycle.
func (a *answerer) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	now := ctx.Value(cycleKey{}).(*cycle)
	var numbers []string
	for _, msg := range p.Messages {
		if t, ok := taskOf(msg.PlainText()); ok {
			numbers = append(numbers, fmt.Sprint(t.Number))
		}
	}
	return func(yield func(chat.Chunk, error) bool) {
		a.w.Acknowledge(now.serial)
		if now.done {
			a.w.Faultf("the model of %s is asked for the rows %q, whose request has a reply", now.inbox, now.rows)
		}
		if got := strings.Join(numbers, " "); got != now.prompt {
			a.w.Faultf("the model of %s gets the tasks %q, want %q", now.inbox, got, now.prompt)
		}
		if !pause(ctx, time.Duration(now.last.Late)*time.Millisecond+apart(now.last.Number)) {
			yield(chat.Chunk{}, context.Cause(ctx))
			return
		}
		if a.stamp && len(p.Partial.Parts) == 0 {
			yield(chat.ToolInput("call", "stamp", fmt.Sprintf(`{"of":%d}`, now.last.Number)), nil)
			return
		}
		for _, t := range now.tasks {
			switch {
			case a.w.fails(t, failModel):
				yield(chat.Chunk{}, errModel)
				return
			case a.w.fails(t, failBudget):
				yield(chat.Chunk{}, &chat.BudgetError{Scope: "day"})
				return
			}
		}
		if yield(chat.TextDelta("t", "re "), nil) && yield(chat.TextDelta("t", now.prompt), nil) {
			a.w.answered(now)
		}
	}
}

// stamp is a tool with an effect outside.
func stamp(w *Observer) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: "stamp"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, input json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		now := ctx.Value(cycleKey{}).(*cycle)
		if want := fmt.Sprintf(`{"of":%d}`, now.last.Number); string(input) != want {
			w.Faultf("the tool gets %s, want %s", input, want)
		}
		return "stamped", dohost.Await(ctx, func(context.Context) error {
			w.Acknowledge(now.serial)
			w.stamped(now.stamp(), c.Key)
			return nil
		})
	}}
}
