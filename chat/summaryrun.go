package chat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/internal/summary"
)

// summaryKind is the fiber kind of automatic summaries. At most one of a conversation is open. Its rules:
//
//   - The batch that ends a reply starts it, if there are too many messages without a summary. If it is open, the batch sets Again in
//     the note.
//   - It makes one summary, and one more if Again is set; before that, it may merge the oldest summaries. It clears Again in the batch of the summary, and its last read of Again and
//     its end are one batch. So there is at most one summary for each reply that ends, and no reply that ends while the fiber runs
//     is forgotten.
//   - The first batch after the answer of the model has the row of the summary, if the messages are still the same. So an
//     interruption repeats at most the call of the model in progress, and no answer is used twice, or for other messages.
//   - A failed call is reported, charged in the note, and repeated with backoff (see chargeSummary). The charges outlive an interruption.
//     When the budget is spent, the fiber ends, and no other starts for [summary.Pause].
//   - No reply waits for it: each has the context that is stored.
const summaryKind agent.FiberKind[struct{}] = "chat.summary"

// maxSummary bounds a summary, in bytes.
const maxSummary = 32 << 10

// errSummaryTimeout ends a call of the model: other summaries wait for it.
var errSummaryTimeout = fmt.Errorf("chat: the model has not summarised in %v", summary.Timeout)

// summarizer makes the summaries of a conversation, stores them, and reads the messages with them.
type summarizer struct {
	*shared
	messages *storedMessages

	// Owned by the goroutine that has the turn.

	// summarizing is closed at the end of the summary that is being made; nil if there is none.
	summarizing chan struct{}
	// part has the messages that the model is summarising; nil if there are none.
	part *summaryPart
}

// summarizeLater starts a fiber that summarises, or makes the open one summarise again, if there are too many messages without a
// summary. The caller's batch ends a reply.
func (k *summarizer) summarizeLater(ctx context.Context) error {
	h := k.options().History
	if h == nil {
		return nil
	}
	n, err := k.uncovered(ctx, h.Threshold+1)
	if err != nil || n <= h.Threshold {
		return err
	}
	last, err := k.readNote(ctx, summaryNote)
	if err != nil || time.Now().UnixMilli() < last.Until {
		return err
	}
	f, ok, err := k.base.Fibers().Get(ctx, last.Fiber)
	switch {
	case err != nil:
		return err
	case ok && (f.Status == agent.FiberPending || f.Status == agent.FiberRunning):
		if last.Again {
			return nil
		}
		last.Again = true
		return notes.Put(ctx, k.store(), last)
	}
	s, err := agent.StartFiber(ctx, k.base, summaryKind, struct{}{}, nil)
	if errors.Is(err, dohost.ErrOverloaded) { // the end of the next reply tries again
		return nil
	}
	if err != nil {
		return err
	}
	return notes.Put(ctx, k.store(), noteRow{Name: summaryNote, Fiber: s.ID})
}

// summarizeFiber is the method of summaryKind. A summary that is discarded, because the messages have changed, counts as one.
func (k *summarizer) summarizeFiber(ctx context.Context, _ *agent.Fiber[struct{}]) error {
	h := k.options().History
	if h == nil { // the class had one when the fiber began
		return nil
	}
	for {
		_, err := k.summarize(ctx, h, func(messages int) (most, least int) {
			if messages <= h.Threshold {
				return 0, 1
			}
			return min(messages-h.Window, h.Threshold), 1
		})
		again := false
		switch {
		case errors.Is(err, ErrMessagesChanged):
			k.object().Report(ctx, "chat:summary", slog.String("outcome", "discarded"))
			again, err = k.endSummary(ctx)
		case exhaustedBudget(err) != nil: // without a charge; the end of a later reply tries again
			k.object().Report(ctx, "chat:summary", slog.String("outcome", "budget"), slog.Any("err", err))
			return nil
		case err != nil && ctx.Err() == nil:
			again, err = k.chargeSummary(ctx, err)
		case err == nil:
			again, err = k.endSummary(ctx)
		}
		if err != nil || !again {
			return err
		}
	}
}

// endSummary ends the charges of a summary, and reports whether the fiber makes another. It writes in the batch of the summary.
func (k *summarizer) endSummary(ctx context.Context) (again bool, err error) {
	err = retryNoSpace(ctx, func() error {
		x, err := k.readNote(ctx, summaryNote)
		if again = x.Again; err != nil || !again && x.Count == 0 {
			return err
		}
		x.Again, x.Count = false, 0
		return notes.Put(ctx, k.store(), x)
	})
	return again, err
}

// chargeSummary reports a failed call of the model, and charges it to the budget of the summary. It waits for the time of the next
// call, with backoff from 1 s to 5 min; again is false if the budget is spent.
func (k *summarizer) chargeSummary(ctx context.Context, failed error) (again bool, err error) {
	_, invalid := errors.AsType[*OutputError](failed)
	var x noteRow
	err = retryNoSpace(ctx, func() (err error) {
		if x, err = k.readNote(ctx, summaryNote); err != nil {
			return err
		}
		x.Name = summaryNote
		var spent bool
		if x.Count, spent = summary.Charge(x.Count, invalid); spent {
			x.Count, x.Again, x.Until = 0, false, time.Now().Add(summary.Pause).UnixMilli()
		}
		again = !spent
		return notes.Put(ctx, k.store(), x)
	})
	if err != nil {
		return false, err
	}
	outcome := "failed"
	if !again {
		outcome = "gave-up"
	}
	k.object().Report(ctx, "chat:summary", slog.String("outcome", outcome), slog.Any("err", failed))
	if !again {
		return false, nil
	}
	return true, dohost.Sleep(ctx, summary.Delay(x.Count))
}

// summarize makes one summary of the oldest messages without one, and stores it. It returns nil if there are too few. size returns
// the bounds of the number of messages, given the number of those without a summary. The bound of the prompt allows for fewer.
func (k *summarizer) summarize(ctx context.Context, h *History, size func(messages int) (most, least int)) (*summaryRow, error) {
	for k.summarizing != nil {
		if _, _, err := dohost.Recv(ctx, k.summarizing); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	k.summarizing = done
	defer func() {
		k.summarizing = nil
		close(done)
	}()
	p, err := k.nextPart(ctx, size)
	if err != nil || p == nil {
		return nil, err
	}
	merged, err := k.mergeSummaries(ctx, h)
	if err != nil {
		return nil, err
	}
	if merged { // the messages may have changed
		if p, err = k.nextPart(ctx, size); err != nil || p == nil {
			return nil, err
		}
	}
	k.part = p
	defer func() { k.part = nil }()
	content, err := k.askForSummary(ctx, h, p.prompt)
	if err != nil {
		return nil, err
	}
	var row summaryRow
	stored := false
	err = retryNoSpace(ctx, func() (err error) { // the answer has a price
		row, stored, err = k.putSummary(ctx, p, content)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !stored:
		return nil, ErrMessagesChanged
	}
	k.object().Report(ctx, "chat:summary", slog.String("outcome", "stored"), slog.Int("messages", row.Messages))
	return &row, nil
}

// nextPart returns the messages of the next summary; nil if there are too few. For size see summarize.
func (k *summarizer) nextPart(ctx context.Context, size func(messages int) (most, least int)) (*summaryPart, error) {
	n, err := k.uncovered(ctx, 0)
	if err != nil {
		return nil, err
	}
	most, least := size(n)
	if most < least {
		return nil, nil
	}
	x, err := extent(ctx, k.store())
	if err != nil {
		return nil, err
	}
	p, err := k.gather(ctx, x.Covered+1, math.MaxUint64, most)
	if err != nil || p.messages == 0 || p.messages < least && !p.full {
		return nil, err
	}
	return &p, nil
}

// mergeSummaries replaces the oldest summaries by one, if there are [summary.MaxRows].
func (k *summarizer) mergeSummaries(ctx context.Context, h *History) (merged bool, err error) {
	rows, err := summaries.List(ctx, k.store(), nil)
	if err != nil || len(rows) < summary.MaxRows {
		return false, err
	}
	var old []summaryRow
	var prompt []byte
	for _, row := range rows[:summary.MergedRows] {
		old = append(old, row.Value)
		if row.Value.Content == "" {
			continue
		}
		line, err := rawjson.Encode(promptLine{Role: "summary", Text: row.Value.Content})
		if err != nil {
			return false, err
		}
		prompt = append(append(prompt, line...), '\n')
	}
	content, err := k.askForSummary(ctx, h, bytes.TrimSuffix(prompt, []byte("\n")))
	if err != nil {
		return false, err
	}
	stored := false
	err = retryNoSpace(ctx, func() (err error) { // the answer has a price
		stored, err = k.putMerged(ctx, old, content)
		return err
	})
	switch {
	case err != nil:
		return false, err
	case !stored:
		return false, ErrMessagesChanged
	}
	k.object().Report(ctx, "chat:summary", slog.String("outcome", "merged"), slog.Int("summaries", len(old)))
	return true, nil
}

// askForSummary returns the answer of the model to a prompt, or nothing for an empty prompt. A worker asks the
// model and rejects truncated answers.
func (k *summarizer) askForSummary(ctx context.Context, h *History, prompt []byte) (string, error) {
	if len(prompt) == 0 {
		return "", nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, summary.Timeout, errSummaryTimeout)
	defer stop()
	return h.Worker("dohost-summary").Run(k.summaryContext(ctx), k.base, string(prompt))
}

// boundedModel yields the texts of a model, up to maxSummary bytes, and the metadata with the reason of its end.
type boundedModel struct{ Model }

// Stream implements [Model].
func (m boundedModel) Stream(ctx context.Context, p *Prompt) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		n := 0
		for c, err := range m.Model.Stream(ctx, p) {
			switch {
			case err != nil:
				yield(Chunk{}, err)
				return
			case c.Type() == "text-delta":
				n += len(c.Text("delta"))
			case c.Type() != "message-metadata":
				continue
			}
			if n > maxSummary {
				yield(Chunk{}, &OutputError{Err: fmt.Errorf("it has more than %d bytes", maxSummary)})
				return
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}
