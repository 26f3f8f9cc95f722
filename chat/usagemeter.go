package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
)

// meter records the calls of models that are made in a context: for a reply, for a summary, or by a worker.
type meter struct {
	st               *dohost.State
	price            func(Usage) int64
	keep             time.Duration // see Options.KeepUsage
	purpose          CallPurpose
	worker           string
	request, message string
	panicked         error // of price; reported at the end of the call
}

// meterKey is the context key of the meter of a reply or of a summary.
type meterKey struct{}

// meter returns the meter of a conversation.
func (k *conversation) meter(p CallPurpose) *meter {
	o := &k.class.options
	return &meter{st: k.base.Object(), price: o.Price, keep: o.KeepUsage, purpose: p}
}

// summaryContext returns the context of the worker that summarises.
func (k *conversation) summaryContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, k.meter(PurposeSummary))
}

// meter returns the meter of a reply.
func (l *liveReply) meter() *meter {
	m := l.k.meter(PurposeReply)
	m.request, m.message = l.row.ID, l.row.Message
	return m
}

// workerMeter returns the meter of a worker: in the context of a reply, its calls count towards the reply.
func workerMeter(ctx context.Context, a agent.Ref, st *dohost.State, w *workerSpec) *meter {
	m := &meter{st: st, price: w.price, keep: keepUsage, purpose: PurposeWorker}
	if of, ok := ctx.Value(meterKey{}).(*meter); ok && of.st == st {
		m.price, m.keep, m.request, m.message = of.price, of.keep, of.request, of.message
		if of.purpose == PurposeSummary {
			m.purpose = PurposeSummary
		}
	} else if chats, ok := a.(Ref); ok {
		of := chats.conv().meter(PurposeWorker)
		m.price, m.keep = of.price, of.keep
	}
	if m.purpose == PurposeWorker {
		m.worker = w.name
	}
	return m
}

const (
	// bytesPerToken is the number of bytes that an estimate counts as a token.
	bytesPerToken = 4
	// fileBytes is the number of bytes that an estimate counts for a file.
	fileBytes = 4 << 10
	// usageEvery bounds the output tokens, and usagePause the time, that a row lacks while the model answers: an interruption loses at
	// most so many.
	usageEvery = 128
	usagePause = time.Second
)

// tokens returns the estimated tokens of a text with so many bytes.
func tokens(bytes int) int64 { return (int64(bytes) + bytesPerToken - 1) / bytesPerToken }

// promptBytes returns the size of a prompt for an estimate.
func promptBytes(p *Prompt) int {
	n := len(p.System) + messageBytes(&p.Partial)
	for i := range p.Messages {
		n += messageBytes(&p.Messages[i])
	}
	for i := range p.Tools {
		n += len(p.Tools[i].Name) + len(p.Tools[i].Description) + len(p.Tools[i].Parameters)
	}
	return n
}

func messageBytes(m *Message) (n int) {
	for _, p := range m.Parts {
		switch {
		case p.Type() == "text" || p.Type() == "reasoning":
			n += len(p.Text("text"))
		case p.Type() == "file":
			n += fileBytes
		case uimessage.IsCall(p):
			n += len(uimessage.ToolName(p)) + len(p.Member("input")) + len(p.Member("output")) + len(p.Text("errorText"))
		}
	}
	return n
}

// usageCall is the record of one call of a model. Its methods need the turn, or a context for hold.
type usageCall struct {
	*meter
	// resumes is set if the call continues an answer: see ResumableModel.
	resumes bool
	// hold calls a function with the turn.
	hold func(ctx context.Context, do func(context.Context) error) error
	// retry repeats a function while there is no space on the disk.
	retry func(ctx context.Context, do func() error) error

	row      modelCallRow    // as it is stored
	reported usageAmounts    // the amounts that an earlier report of the row has
	known    Usage           // the last report of the model, or the estimate of the prompt
	real     bool            // the model has reported
	bytes    int             // of output after the last report
	deltas   map[string]bool // the ids of the tool calls whose input came in pieces
	base     int64           // the milliseconds of the row before this call
	from     time.Time
	// continued is set if the row is that of an earlier call, and asked if the model was asked.
	continued, asked bool
}

// begin writes the row of a call before the model is asked, and returns when it is durable.
func (u *usageCall) begin(ctx context.Context, p *Prompt) error {
	u.from = time.Now()
	u.known = Usage{InputTokens: tokens(promptBytes(p)), Estimated: true}
	err := u.write(ctx, func(ctx context.Context) error {
		if u.resumes {
			if ok, err := u.continueRow(ctx); ok || err != nil {
				return err
			}
		}
		if err := u.settleInterrupted(ctx); err != nil {
			return err
		}
		row := modelCallRow{
			Purpose: u.purpose, Worker: u.worker, Request: u.request, Message: u.message, Epoch: u.st.Epoch().String(),
			Outcome: ModelCallRunning, Began: u.from.UnixMilli(), Written: u.from.UnixMilli(),
		}
		row.Amounts = u.amounts()
		var none modelCallRow
		if err := u.putModelCall(ctx, &none, &row); err != nil {
			return err
		}
		u.row = row
		return nil
	})
	if err == nil {
		err = dohost.AwaitDurable(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		u.asked = true
	}
	return err
}

// continueRow continues the row of the last step of the reply.
func (u *usageCall) continueRow(ctx context.Context) (ok bool, err error) {
	s := u.st.Storage()
	total, _, err := usageTotals.Get(ctx, s, usageScope{replyScope, u.message}.key())
	if err != nil || total.Value.Step == 0 {
		return false, err
	}
	old, ok, err := modelCalls.Get(ctx, s, modelCallKey(total.Value.Step))
	if err != nil || !ok {
		return false, err
	}
	row := old.Value
	if !row.open() {
		u.reported = row.Amounts
	}
	row.Epoch, row.Outcome = u.st.Epoch().String(), ModelCallRunning
	u.known, u.base, u.real = row.Amounts.usage(), row.Amounts.Millis, true
	u.known.Model = row.Model
	if err := u.putModelCall(ctx, &old.Value, &row); err != nil {
		return false, err
	}
	u.row, u.continued = row, true
	return true, nil
}

// write calls a function that writes, with the turn, as soon as there is space on the disk.
func (u *usageCall) write(ctx context.Context, do func(context.Context) error) error {
	return u.retry(ctx, func() error { return u.hold(ctx, do) })
}

// amounts returns the amounts of the call now.
func (u *usageCall) amounts() usageAmounts {
	now := u.known
	now.OutputTokens += tokens(u.bytes)
	now.Estimated = now.Estimated || !u.real || u.bytes > 0
	a := usageAmounts{
		Calls: 1, Input: now.InputTokens, Cached: now.CachedInputTokens, Output: now.OutputTokens, Reasoning: now.ReasoningTokens,
		Cost: u.cost(now), Millis: u.base + time.Since(u.from).Milliseconds(),
	}
	if now.Estimated {
		a.Estimates = 1
	}
	return a
}

// cost returns the price of a usage. If the function of the program panics, the cost is the one that the model has reported.
func (m *meter) cost(u Usage) (cost int64) {
	if m.price == nil {
		return u.Cost
	}
	defer func() {
		if p := recover(); p != nil {
			m.panicked = fmt.Errorf("chat: Price: panic: %v", p)
			cost = u.Cost
		}
	}()
	return clampAmount(m.price(u))
}

// report is Prompt.ReportUsage.
func (u *usageCall) report(ctx context.Context, v Usage) error {
	first := !u.real
	for _, n := range []*int64{&v.InputTokens, &v.CachedInputTokens, &v.OutputTokens, &v.ReasoningTokens, &v.Cost} {
		*n = clampAmount(*n)
	}
	if v.InputTokens == 0 { // the report is about the output alone
		v.InputTokens, v.CachedInputTokens = u.known.InputTokens, u.known.CachedInputTokens
		v.Estimated = v.Estimated || u.known.Estimated
	}
	if v.Model = clipName(v.Model); v.Model == "" {
		v.Model = u.known.Model
	}
	u.known, u.real, u.bytes = v, true, 0
	if first {
		return u.storeNow(ctx)
	}
	return u.storeSometimes(ctx)
}

// clampAmount returns an amount that sums can have.
func clampAmount(n int64) int64 { return max(0, min(n, maxAmount>>16)) }

// count counts a chunk of the model.
func (u *usageCall) count(c Chunk) {
	switch c.Type() {
	case "text-delta", "reasoning-delta":
		u.bytes += len(c.Text("delta"))
	case "tool-input-delta":
		if u.deltas == nil {
			u.deltas = map[string]bool{}
		}
		u.deltas[c.Text("toolCallId")] = true
		u.bytes += len(c.Text("inputTextDelta"))
	case "tool-input-available":
		if !u.deltas[c.Text("toolCallId")] {
			u.bytes += len(c.Member("input"))
		}
	}
}

// storeSometimes writes the row if the stored one lacks too much.
func (u *usageCall) storeSometimes(ctx context.Context) error {
	now := time.Now()
	if u.known.OutputTokens+tokens(u.bytes) < u.row.Amounts.Output+usageEvery && now.Sub(time.UnixMilli(u.row.Written)) < usagePause {
		return nil
	}
	return u.storeNow(ctx)
}

// storeNow writes the row, unless the disk is full: the model continues to answer.
func (u *usageCall) storeNow(ctx context.Context) error {
	err := u.hold(ctx, func(ctx context.Context) error { return u.store(ctx, ModelCallRunning) })
	if noSpace(err) {
		return nil
	}
	return err
}

// store writes the row with the present amounts.
func (u *usageCall) store(ctx context.Context, o CallOutcome) error {
	row := u.row
	row.Model, row.Outcome, row.Written, row.Amounts = u.known.Model, o, time.Now().UnixMilli(), u.amounts()
	if !u.asked {
		row.Amounts = usageAmounts{Calls: 1}
	}
	old := u.row
	if err := u.putModelCall(ctx, &old, &row); err != nil {
		return err
	}
	u.row = row
	if o != ModelCallRunning {
		u.reportCall(ctx, &row, row.Amounts.minus(u.reported))
	}
	return nil
}

// end writes the row at the end of the call. failed is the error of the call. If the incarnation has ended, nothing is written: see
// settleInterrupted. After the end of ctx it does not wait for space on the disk, and an answer is not lost because of that: the row
// then remains as it is, and counts as interrupted.
func (u *usageCall) end(ctx context.Context, failed error) error {
	if u.row.Number == 0 || errors.Is(failed, dohost.ErrFenced) {
		return nil
	}
	o := ModelCallCompleted
	refused, isRefused := errors.AsType[*ModelError](failed)
	switch {
	case failed == nil:
	case u.resumes && errors.Is(failed, ErrNotResumable):
		o = ModelCallInterrupted
		u.asked = u.asked && u.continued
	case ctx.Err() != nil, errors.Is(failed, ErrReplyOver):
		o = ModelCallStopped
	default:
		o = ModelCallFailed
		if isRefused && refused != nil && refused.Status >= 400 && !u.real && u.bytes == 0 {
			u.asked = false // no provider bills a request that it refuses
		}
	}
	store := func(ctx context.Context) error { return u.store(ctx, o) }
	err := u.hold(context.WithoutCancel(ctx), store)
	if noSpace(err) && ctx.Err() == nil {
		err = u.write(ctx, store)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, dohost.ErrFenced) {
		err = nil
	}
	if p := u.panicked; p != nil {
		u.panicked = nil
		u.st.Report(ctx, "chat:failed", slog.String("hook", "Price"), slog.Any("err", p))
	}
	return err
}
