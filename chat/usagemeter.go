package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// meter records the calls of models that are made in a context: for a reply, for a summary, or by a worker.
type meter struct {
	st               *dohost.State
	price            func(Usage) int64
	budget           Budget
	keep             time.Duration // see Options.KeepUsage
	purpose          Purpose
	worker           string
	request, message string
	panicked         error // of price; reported at the end of the call
}

// meterKey is the context key of the meter of a reply or of a summary.
type meterKey struct{}

// meter returns the meter of a conversation.
func (s *shared) meter(p Purpose) *meter {
	o := s.options()
	return &meter{st: s.object(), price: o.Price, budget: o.Budget, keep: o.KeepUsage, purpose: p}
}

// summaryContext returns the context of the worker that summarises.
func (k *summarizer) summaryContext(ctx context.Context) context.Context {
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
	m := &meter{st: st, price: w.price, budget: w.budget, keep: keepUsage, purpose: PurposeWorker}
	if of, ok := ctx.Value(meterKey{}).(*meter); ok && of.st == st {
		m.price, m.budget, m.keep, m.request, m.message = of.price, of.budget, of.keep, of.request, of.message
		if of.purpose == PurposeSummary {
			m.purpose = PurposeSummary
		}
	} else if chats, ok := a.(Ref); ok {
		of := chats.conv().meter(PurposeWorker)
		m.price, m.budget, m.keep = of.price, of.budget, of.keep
	}
	if m.purpose == PurposeWorker {
		m.worker = w.name
	}
	return m
}

const (
	// usagePause is the time from a change of the row of a reply to the next chunk that changes it, and workerUsagePause that of a worker.
	// Without such a chunk the row changes usageGrace later. The row of a reply also changes with the chunk that makes usageEvery tokens of output since its last change,
	// and with the first chunk after a report of another input or cost. That costs no commit, because the batch of the chunk has it. A
	// worker has no such batch.
	usagePause       = time.Second
	workerUsagePause = 30 * time.Second
	usageGrace       = 250 * time.Millisecond
	usageEvery       = 128
)

// usageCall is the record of one call of a model. Its methods need the turn, or a context for withTurn.
type usageCall struct {
	*meter
	// resumes is set if the call continues an answer: see ResumableModel.
	resumes bool
	step    int // see modelCallRow.Step
	// pause is the time from a change of the row to the next: see usagePause. withChunks is set if each chunk has a batch.
	pause      time.Duration
	withChunks bool
	// withTurn calls a function with the turn.
	withTurn func(ctx context.Context, do func(context.Context) error) error
	// retry repeats a function while there is no space on the disk.
	retry func(ctx context.Context, do func() error) error

	row      modelCallRow          // as it is stored
	reported usageAmounts          // the amounts that an earlier report of the row has
	known    Usage                 // the last report of the model, or the estimate of the prompt
	real     bool                  // the model has reported
	bytes    int                   // of output after the last report
	inputs   map[string]*callInput // of the tool calls, by their ids
	base     int64                 // the milliseconds of the row before this call
	from     time.Time
	ended    time.Time // zero before the end
	tried    time.Time // of the last attempt to write the row
	lacks    bool      // the row lacks a chunk or a report
	soon     bool      // it lacks a report that changes more than the output
	// suspends is set if the call stops when a budget is exhausted, and budgetsLeft are the budgets when the row was last written.
	suspends    bool
	budgetsLeft []budgetState
	// continued is set if the row is that of an earlier call, and asked if the model was asked.
	continued, asked bool
}

// begin writes the row of a call before the model is asked, and returns when it is durable.
func (u *usageCall) begin(ctx context.Context, p *Prompt) error {
	u.from = time.Now()
	u.known = Usage{InputTokens: tokens(promptBytes(p)), Estimated: true}
	if u.resumes {
		u.countPartial(&p.Partial)
	}
	err := u.write(ctx, func(ctx context.Context) error {
		if over, err := u.exhausted(ctx, u.from); err != nil {
			return err
		} else if over != nil {
			return exhaustedError{over}
		}
		if u.resumes {
			if ok, err := u.continueRow(ctx); ok || err != nil {
				return err
			}
		}
		if err := u.recordInterrupted(ctx); err != nil {
			return err
		}
		row := modelCallRow{
			Purpose: u.purpose, Worker: u.worker, Request: u.request, Message: u.message, Epoch: u.st.Epoch().String(),
			Outcome: ModelCallRunning, Began: u.from.UnixMilli(), Step: u.step,
		}
		row.Amounts = u.amounts()
		if err := u.putModelCall(ctx, &row); err != nil {
			return err
		}
		u.row = row
		return nil
	})
	if err == nil {
		err = u.watchBudgets(ctx)
	}
	if err == nil {
		err = dohost.AwaitDurable(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		u.asked = true
	}
	u.tried = time.Now()
	return err
}

// continueRow continues the last row of the open step of the reply. The step may have none: the disk was full before its first call.
func (u *usageCall) continueRow(ctx context.Context) (ok bool, err error) {
	s := u.st.Storage()
	total, _, err := usageTotals.Get(ctx, s, usageScope{replyScope, u.message}.key())
	if err != nil || total.Value.Step == 0 {
		return false, err
	}
	old, ok, err := modelCalls.Get(ctx, s, modelCallKey(total.Value.Step))
	if err != nil || !ok || old.Value.Step != u.step {
		return false, err
	}
	row := old.Value
	if !row.open() {
		u.reported = row.Amounts
	}
	row.Epoch, row.Outcome = u.st.Epoch().String(), ModelCallRunning
	u.known, u.base, u.real = row.Amounts.usage(), row.Amounts.Millis, true
	u.known.Model, u.known.Cost = row.Model, row.Stated
	if err := u.putModelCall(ctx, &row); err != nil {
		return false, err
	}
	u.row, u.continued = row, true
	return true, nil
}

// write calls a function that writes, with the turn, as soon as there is space on the disk.
func (u *usageCall) write(ctx context.Context, do func(context.Context) error) error {
	return u.retry(ctx, func() error { return u.withTurn(ctx, do) })
}

// amounts returns the amounts of the call now.
func (u *usageCall) amounts() usageAmounts {
	now := u.known
	now.OutputTokens += tokens(u.bytes)
	now.Estimated = now.Estimated || !u.real || u.bytes > 0
	took := time.Since(u.from)
	if !u.ended.IsZero() {
		took = u.ended.Sub(u.from)
	}
	a := usageAmounts{
		Calls: 1, Input: now.InputTokens, Cached: now.CachedInputTokens, Output: now.OutputTokens, Reasoning: now.ReasoningTokens,
		Cost: u.cost(now), Millis: u.base + took.Milliseconds(),
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

// report is Prompt.ReportUsage. It changes the row later: see usagePause.
func (u *usageCall) report(v Usage) {
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
	old := u.known
	u.soon = u.soon || !u.real || v.InputTokens != old.InputTokens || v.Cost != old.Cost || v.Estimated != old.Estimated
	u.known, u.real, u.bytes, u.lacks = v, true, 0, true
}

// clampAmount returns an amount that sums can have.
func clampAmount(n int64) int64 { return max(0, min(n, maxAmount>>16)) }

// storeSometimes writes the row after a chunk if it is time: see usagePause.
func (u *usageCall) storeSometimes(ctx context.Context) error {
	much := u.withChunks && (u.soon || u.known.OutputTokens+tokens(u.bytes) >= u.row.Amounts.Output+usageEvery)
	if !u.lacks || !much && time.Since(u.tried) < u.pause {
		return nil
	}
	return u.storeNow(ctx)
}

// errStoreUsage ends the wait for a chunk when the row must be written.
var errStoreUsage = errors.New("chat: the row of the usage must be written")

// withStoreTime returns a context that ends when the row must be written.
func (u *usageCall) withStoreTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if !u.lacks {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, max(0, u.pause+usageGrace-time.Since(u.tried)), errStoreUsage)
}

// storeNow writes the row, unless the disk is full: the model continues to answer.
func (u *usageCall) storeNow(ctx context.Context) error {
	u.tried = time.Now()
	err := u.withTurn(ctx, func(ctx context.Context) error { return u.store(ctx, ModelCallRunning) })
	if noSpace(err) {
		return nil
	}
	return err
}

// store writes the row with the present amounts.
func (u *usageCall) store(ctx context.Context, o ModelCallOutcome) error {
	row := u.row
	row.Model, row.Outcome, row.Stated, row.Amounts = u.known.Model, o, u.known.Cost, u.amounts()
	if !u.asked {
		row.Stated, row.Amounts = 0, usageAmounts{Calls: 1}
	}
	if err := u.putModelCall(ctx, &row); err != nil {
		return err
	}
	u.row, u.lacks, u.soon = row, false, false
	if o == ModelCallRunning {
		return u.watchBudgets(ctx)
	}
	u.reportCall(ctx, &row, row.Amounts.minus(u.reported))
	return nil
}

// end writes the row at the end of the call. failed is the error of the call. If the incarnation has ended, the write fails: see
// recordInterrupted. After the end of ctx, end does not wait for space on the disk: a task of the object waits, and writes the row.
func (u *usageCall) end(ctx context.Context, failed error) error {
	if u.row.Number == 0 {
		return nil
	}
	u.ended = time.Now()
	o := ModelCallCompleted
	refused, isRefused := errors.AsType[*ModelError](failed)
	switch {
	case failed == nil:
	case u.resumes && errors.Is(failed, ErrNotResumable):
		o = ModelCallInterrupted
		u.asked = u.asked && u.continued
	case ctx.Err() != nil, errors.Is(failed, ErrReplyOver), exhaustedBudget(failed) != nil:
		o = ModelCallStopped
	default:
		o = ModelCallFailed
		if isRefused && refused != nil && refused.Status >= 400 && !u.real && u.bytes == 0 {
			u.asked = false // no provider bills a request that it refuses
		}
	}
	store := func(ctx context.Context) error { return u.store(ctx, o) }
	err := u.withTurn(context.WithoutCancel(ctx), store)
	if noSpace(err) && ctx.Err() == nil {
		err = u.write(ctx, store)
	}
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrReplyOver)) && !errors.Is(err, dohost.ErrFenced) {
		err = u.withTurn(context.WithoutCancel(ctx), func(ctx context.Context) error { return u.storeLater(ctx, store) })
	}
	if p := u.panicked; p != nil {
		u.panicked = nil
		u.st.Report(ctx, "chat:failed", slog.String("hook", "Price"), slog.Any("err", p))
	}
	return err
}

// storeLater starts a task that stores the row at the end of the call as soon as there is space on the disk. The row is the task's from now
// on. If the incarnation ends before that, the row remains as it is, and counts as interrupted.
func (u *usageCall) storeLater(ctx context.Context, store func(context.Context) error) error {
	err := u.st.GoImmediately(ctx, "usage of a model", func(ctx context.Context) error {
		return retryNoSpace(ctx, func() error { return store(ctx) })
	})
	if errors.Is(err, dohost.ErrFenced) {
		return err
	}
	return nil // too many tasks: the row remains as it is
}
