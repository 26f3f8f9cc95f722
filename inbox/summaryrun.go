package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/summary"
)

// The fiber that summarises. At most one of a conversation is open. Its rules:
//
//   - The batch of a response starts it, and so does Generate before it asks the model, if there are too many messages without a summary
//     and none is open. So it also starts while the cycles fail because their prompts are too long.
//   - It makes summaries until there are not too many messages. Its last read of them and its end are one batch, so no response that
//     is stored while the fiber runs is forgotten. It ends after a summary that it must discard. So a write to a covered message costs no
//     summary before the next cycle, and a cycle at most those of the whole conversation, however often covered messages were written.
//   - The first batch after the answer of the model has the summary, if the messages are still the same. The answer is an operation of the
//     ledger at the position of the fiber. So an interruption repeats at most the call of the model in progress.
//   - A failed call is reported, charged in summaryState, and repeated with backoff. The charges outlive an interruption. When the
//     budget of failures is spent, the fiber ends, and no other starts for summary.Pause. An exhausted chat.Budget ends the fiber without
//     a charge.
//   - No cycle waits for it: each has the context that is stored. But a cycle that fails while the fiber is open postpones its messages, since its
//     prompt may be too long until the summary is stored. So the failure counts as no attempt. The charges bound the duration of a fiber, and
//     maxAwaited bounds the duration of several fibers that end without a summary: see awaitSummary.

// summaryKeep is the retention period of the recorded answers of the summarising model. Only the fiber needs them.
const summaryKeep = 24 * time.Hour

// summaryKind returns the kind of the fibers that summarise a conversation.
func (h *history) summaryKind() agent.FiberKind[struct{}] {
	return agent.FiberKind[struct{}]("inbox.summary/" + h.agent + "/" + h.messages.Name)
}

// newSummarizer returns the worker that summarises; nil without a History.
func (a *Agent) newSummarizer() *chat.Worker[string, string] {
	if a.History == nil {
		return nil
	}
	name := a.Name + "-summary"
	if len(name) > 64 {
		sum := sha256.Sum256([]byte(a.Name))
		name = "summary-" + hex.EncodeToString(sum[:16])
	}
	w := a.History.Worker(name)
	w.Durable, w.Keep, w.Price, w.Budget = true, summaryKeep, a.Price, a.Budget
	return w
}

// checkHistory returns the error in the History.
func (a *Agent) checkHistory() error {
	if a.History == nil {
		return nil
	}
	_, _, err := summary.Limits(a.History.Threshold, a.History.Window)
	switch {
	case a.History.Model == nil:
		return errors.New("History.Model is nil")
	case err != nil:
		return err
	case a.MaxMessages > 0:
		return fmt.Errorf("MaxMessages is %d with a History: want 0, or else messages would be left out before their summary", a.MaxMessages)
	}
	return nil
}

// summarizeLater starts the fiber, if there are too many messages without a summary.
func (a *Agent) summarizeLater(ctx context.Context, of Ref, h *history) error {
	if a.History == nil {
		return nil
	}
	s := of.Storage()
	x, err := h.state(ctx, s)
	if err != nil || x.pauses(time.Now()) {
		return err
	}
	if n, err := a.excess(ctx, s, h, false); err != nil || n == 0 {
		return err
	}
	if open, err := x.isOpen(ctx, of); err != nil || open {
		return err
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		started, err := agent.StartFiber(ctx, of, h.summaryKind(), struct{}{}, nil)
		if err != nil {
			return err
		}
		x.Fiber = started.ID
		return summaryStates.Put(ctx, s, x)
	})
	if errors.Is(err, dohost.ErrOverloaded) { // no failure of the cycle: the next one tries again
		return nil
	}
	return err
}

// isOpen reports whether the last fiber has not ended.
func (x *summaryState) isOpen(ctx context.Context, of Ref) (bool, error) {
	if x.Fiber == "" {
		return false, nil
	}
	f, ok, err := of.Fibers().Get(ctx, x.Fiber)
	return err == nil && ok && (f.Status == agent.FiberPending || f.Status == agent.FiberRunning), err
}

const (
	// maxAwaitPause bounds the pause after a cycle that has failed while a summary is being made. The pause is the time since the first such
	// failure, so a quick summary does not delay the messages much.
	maxAwaitPause = 30 * time.Second
	// maxAwaited bounds the time from the first such failure: later failures count as attempts. A fiber whose model fails spends its budget of
	// failures earlier. But if clients change the messages, each fiber may discard its summary, and another fiber starts.
	maxAwaited = 2 * time.Hour
)

// awaitSummary returns the error of a cycle whose Generate has failed. It postpones the messages while a fiber is open.
func (a *Agent) awaitSummary(ctx context.Context, of Ref, h *history, failed error) error {
	_, postponed := errors.AsType[*agent.PostponeError](failed)
	if failed == nil && a.History != nil {
		return h.endAwaited(ctx, of.Storage())
	}
	if failed == nil || a.History == nil || postponed || errors.Is(failed, errDeadline) || ctx.Err() != nil {
		return failed
	}
	x, err := h.state(ctx, of.Storage())
	if err != nil {
		return errors.Join(failed, err)
	}
	open, err := x.isOpen(ctx, of)
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case !open:
		return failed
	}
	now := time.Now()
	age := now.Sub(time.UnixMilli(x.Awaited))
	switch {
	case x.Awaited == 0, age < 0: // the clock was set back
		x.Awaited, age = now.UnixMilli(), 0
		if err := summaryStates.Put(ctx, of.Storage(), x); err != nil {
			return errors.Join(failed, err)
		}
	case age > maxAwaited:
		return failed
	}
	h.report(ctx, of, "awaited", slog.Any("err", failed))
	return &agent.PostponeError{After: min(age, maxAwaitPause), Err: failed}
}

// endAwaited forgets earlier failures after a cycle that has an answer: later ones are not a part of the same time.
func (h *history) endAwaited(ctx context.Context, s *dohost.Storage) error {
	x, err := h.state(ctx, s)
	if err != nil || x.Awaited == 0 {
		return err
	}
	x.Awaited = 0
	return summaryStates.Put(ctx, s, x)
}

// pauses reports whether no fiber may start. A clock that was set back does not extend a pause.
func (x *summaryState) pauses(now time.Time) bool {
	left := time.UnixMilli(x.Until).Sub(now)
	return left > 0 && left <= summary.Pause
}

// summarizeFiber is the method of the fiber.
func (a *Agent) summarizeFiber(ctx context.Context, of Ref, h *history) error {
	if a.History == nil { // the agent had one when the fiber began
		return nil
	}
	for {
		row, err := a.summarize(ctx, of, h, false)
		_, exhausted := errors.AsType[*chat.BudgetError](err)
		switch {
		case err == nil && row != nil:
			continue
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case errors.Is(err, chat.ErrMessagesChanged):
			h.report(ctx, of, "discarded", slog.Any("err", err))
			return h.setFailures(ctx, of.Storage(), 0)
		case exhausted:
			h.report(ctx, of, "budget", slog.Any("err", err))
			return nil
		}
		if again, err := h.charge(ctx, of, err); err != nil || !again {
			return err
		}
	}
}

// report reports an event of the summaries.
func (h *history) report(ctx context.Context, of Ref, outcome string, more ...slog.Attr) {
	of.Object().Report(ctx, "inbox:summary", append([]slog.Attr{slog.String("outcome", outcome), slog.String("agent", h.agent)}, more...)...)
}

// setFailures stores the number of the failures of the present summary.
func (h *history) setFailures(ctx context.Context, s *dohost.Storage, n uint64) error {
	return retryNoSpace(ctx, func() error {
		x, err := h.state(ctx, s)
		if err != nil || x.Failures == n {
			return err
		}
		x.Failures = n
		return summaryStates.Put(ctx, s, x)
	})
}

// charge reports a failed call of the model, and charges it. It waits for the time of the next call; again is false if the budget is spent.
func (h *history) charge(ctx context.Context, of Ref, failed error) (again bool, err error) {
	_, invalid := errors.AsType[*chat.OutputError](failed)
	var x summaryState
	spent := false
	err = retryNoSpace(ctx, func() (err error) {
		if x, err = h.state(ctx, of.Storage()); err != nil {
			return err
		}
		if x.Failures, spent = summary.Charge(x.Failures, invalid); spent {
			x.Failures, x.Awaited, x.Until = 0, 0, time.Now().Add(summary.Pause).UnixMilli()
		}
		return summaryStates.Put(ctx, of.Storage(), x)
	})
	if err != nil {
		return false, err
	}
	if spent {
		h.report(ctx, of, "gave-up", slog.Any("err", failed))
		return false, nil
	}
	h.report(ctx, of, "failed", slog.Any("err", failed))
	return true, dohost.Sleep(ctx, summary.Delay(x.Failures))
}

// retryNoSpace calls do, and repeats it every second while there is no space for it: the answer of a model has a price.
func retryNoSpace(ctx context.Context, do func() error) error {
	for {
		if err := do(); !errors.Is(err, dohost.ErrNoSpace) {
			return err
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// summarize makes one summary of the oldest messages without one, and stores it. It returns nil if there is none to be made: see excess.
func (a *Agent) summarize(ctx context.Context, of Ref, h *history, always bool) (*summaryRow, error) {
	p, err := a.nextPart(ctx, of.Storage(), h, always)
	if err != nil || p.messages == 0 {
		return nil, err
	}
	merged, err := a.merge(ctx, of, h)
	if err != nil {
		return nil, err
	}
	if merged { // the messages may have changed
		if p, err = a.nextPart(ctx, of.Storage(), h, always); err != nil || p.messages == 0 {
			return nil, err
		}
	}
	content, err := a.askForSummary(ctx, of, p.prompt)
	if err != nil {
		return nil, err
	}
	var row *summaryRow
	err = retryNoSpace(ctx, func() (err error) {
		row, err = h.put(ctx, of.Storage(), &p, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	h.report(ctx, of, "stored", slog.Int("messages", row.Messages))
	return row, nil
}

var errSummaryTimeout = fmt.Errorf("inbox: the model has not summarised in %v", summary.Timeout)

// askForSummary returns the answer of the model to a prompt, or nothing for an empty prompt.
func (a *Agent) askForSummary(ctx context.Context, of Ref, prompt string) (string, error) {
	if prompt == "" {
		return "", nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, summary.Timeout, errSummaryTimeout)
	defer stop()
	a.run() // makes the worker
	return a.summarizer.Run(ctx, of, prompt)
}

// put stores a summary, unless its messages have changed.
func (h *history) put(ctx context.Context, s *dohost.Storage, p *part, content string) (row *summaryRow, err error) {
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		x, err := h.state(ctx, s)
		if err != nil {
			return err
		}
		now, err := h.gather(ctx, s, p.after, p.messages)
		if err != nil {
			return err
		}
		if x.Covered != p.after || now != *p {
			return chat.ErrMessagesChanged
		}
		list, err := h.rows(ctx, s)
		if err != nil {
			return err
		}
		row = &summaryRow{
			Of: x.Of, Number: 1, To: p.to, First: p.first, Last: p.last, Messages: p.messages, Content: content, Created: time.Now().UnixMilli(),
		}
		if n := len(list); n > 0 {
			row.Number = list[n-1].Number + 1
		}
		x.Covered, x.Failures, x.Awaited = p.to, 0, 0
		return errors.Join(summaryStates.Put(ctx, s, x), summaries.Insert(ctx, s, *row))
	})
	return row, err
}

// merge replaces the oldest summaries by one, if there are summary.MaxRows.
func (a *Agent) merge(ctx context.Context, of Ref, h *history) (merged bool, err error) {
	old, err := h.rows(ctx, of.Storage())
	if err != nil || len(old) < summary.MaxRows {
		return false, err
	}
	old = old[:summary.MergedRows]
	var lines []promptLine
	for _, r := range old {
		if r.Content != "" {
			lines = append(lines, promptLine{"summary", r.Content})
		}
	}
	prompt, err := promptOf(lines...)
	if err != nil {
		return false, err
	}
	content, err := a.askForSummary(ctx, of, prompt)
	if err != nil {
		return false, err
	}
	if err := retryNoSpace(ctx, func() error { return h.putMerged(ctx, of.Storage(), old, content) }); err != nil {
		return false, err
	}
	h.report(ctx, of, "merged", slog.Int("summaries", len(old)))
	return true, nil
}

// putMerged replaces summaries by one of all their messages, unless they have changed.
func (h *history) putMerged(ctx context.Context, s *dohost.Storage, old []summaryRow, content string) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		row := old[len(old)-1]
		row.First, row.Messages, row.Content, row.Created = old[0].First, 0, content, time.Now().UnixMilli()
		for _, r := range old {
			now, ok, err := summaries.Get(ctx, s, summaries.Key(r))
			if err != nil {
				return err
			}
			if !ok || now.Value != r {
				return chat.ErrMessagesChanged
			}
			row.Messages += r.Messages
			if _, err := summaries.Delete(ctx, s, summaries.Key(r)); err != nil {
				return err
			}
		}
		return summaries.Put(ctx, s, row)
	})
}
