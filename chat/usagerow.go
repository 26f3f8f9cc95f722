package chat

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// The records of the usage. These rules hold:
//
//   - A call has a row, which is durable before the model is asked. So each call that a provider has seen has a row.
//   - A row changes in the batch of a chunk, of a report, or of the end of the call, and at the end of a call in any case.
//   - Each total is the sum of the amounts of the rows of its scope: a change of a row adds the difference to the totals in the same
//     batch. So an end of an incarnation counts no call twice, and loses only amounts that no row had.
//     The difference is that to the stored row, so the sums are right also if the object has deleted its storage during the call. The
//     row is then inserted again: the provider bills the call.
//   - A row of an incarnation that has ended is not changed, except that the next call marks it as interrupted, and that
//     [ResumableModel].ResumeStream continues the row of the answer that it resumes: the provider bills that answer once.

// usageAmounts are the amounts of a call, or of the calls of a scope.
type usageAmounts struct {
	Calls, Estimates                 int64
	Input, Cached, Output, Reasoning int64
	Cost                             int64
	Millis                           int64 // of the calls together
}

// maxAmount bounds each amount, so that no report of a model makes a sum overflow.
const maxAmount = math.MaxInt64 / 4

// add returns the sums of the amounts.
func (a usageAmounts) add(b usageAmounts) usageAmounts {
	sum := func(x, y int64) int64 { return max(0, min(x+y, maxAmount)) }
	return usageAmounts{
		Calls: sum(a.Calls, b.Calls), Estimates: sum(a.Estimates, b.Estimates),
		Input: sum(a.Input, b.Input), Cached: sum(a.Cached, b.Cached), Output: sum(a.Output, b.Output),
		Reasoning: sum(a.Reasoning, b.Reasoning), Cost: sum(a.Cost, b.Cost), Millis: sum(a.Millis, b.Millis),
	}
}

// minus returns the differences of the amounts, which may be negative.
func (a usageAmounts) minus(b usageAmounts) usageAmounts {
	return usageAmounts{
		a.Calls - b.Calls, a.Estimates - b.Estimates, a.Input - b.Input, a.Cached - b.Cached, a.Output - b.Output,
		a.Reasoning - b.Reasoning, a.Cost - b.Cost, a.Millis - b.Millis,
	}
}

func (a *usageAmounts) usage() Usage {
	return Usage{
		InputTokens: a.Input, CachedInputTokens: a.Cached, OutputTokens: a.Output, ReasoningTokens: a.Reasoning, Cost: a.Cost,
		Estimated: a.Estimates > 0,
	}
}

// modelCallRow is a call of a model. Its amounts count one call.
type modelCallRow struct {
	Number           uint64
	Purpose          Purpose
	Worker           string `msgpack:",omitempty"`
	Request, Message string `msgpack:",omitempty"`
	Model            string
	Epoch            string // of the incarnation
	Outcome          ModelCallOutcome
	Began            int64
	// Step is the number of the steps of the message when the call began, the open one included.
	Step int `msgpack:",omitempty"`
	// Stated is the cost that the model has reported. Amounts.Cost is the computed price if Options.Price is set.
	Stated  int64 `msgpack:",omitempty"`
	Amounts usageAmounts
}

func (r *modelCallRow) open() bool { return r.Outcome == ModelCallRunning }

// isCall reports whether r is the row of the same call. After a [dohost.Storage.DeleteAll] another call may have its number.
func (r *modelCallRow) isCall(of *modelCallRow) bool {
	return r.Began == of.Began && r.Purpose == of.Purpose && r.Worker == of.Worker && r.Request == of.Request && r.Message == of.Message
}

// public returns the call. epoch is the incarnation of the reader: a call of another one was interrupted.
func (r *modelCallRow) public(epoch string) ModelCall {
	c := ModelCall{
		Number: r.Number, Purpose: r.Purpose, Worker: r.Worker, Request: r.Request, Message: r.Message, Began: time.UnixMilli(r.Began),
		Duration: time.Duration(r.Amounts.Millis) * time.Millisecond, Outcome: r.Outcome, Usage: r.Amounts.usage(),
	}
	if r.open() && r.Epoch != epoch {
		c.Outcome = ModelCallInterrupted
	}
	c.Model = r.Model
	return c
}

var modelCalls = dohost.Collection[modelCallRow]{
	Name: "dohost.chat.modelcalls",
	Key:  func(r modelCallRow) string { return modelCallKey(r.Number) },
	Indexes: []dohost.Index[modelCallRow]{
		{Name: "open", Of: func(r modelCallRow) dohost.Key { return partialKey(r.open(), dohost.KeyOf(r.Number)) }},
	},
}

func modelCallKey(number uint64) string { return string(dohost.KeyOf(number)) }

// scopeKind is a kind of scopes of totals.
type scopeKind string

const (
	agentScope scopeKind = "agent"
	dayScope   scopeKind = "day"   // named by the day in UTC
	replyScope scopeKind = "reply" // named by the message, so that it includes the continuations of the reply
)

type usageScope struct {
	Kind scopeKind
	Name string
}

func (s usageScope) key() string { return string(dohost.KeyOf(string(s.Kind)) + dohost.KeyOf(s.Name)) }

// totalRow is the sum of the calls of a scope. It is not a part of the row of the request, which has the body of the request, and
// would be written again with each change.
type totalRow struct {
	Kind    scopeKind
	Name    string
	Last    uint64 // the number of the last call
	Step    uint64 // the number of the last step of Answer
	Amounts usageAmounts
	// Base are the amounts at the last approval of the budget of the scope, and Grants the number of approvals.
	Base   usageAmounts `msgpack:",omitempty"`
	Grants int64        `msgpack:",omitempty"`
}

func (r *totalRow) public() TotalUsage {
	return TotalUsage{r.Amounts.Calls, r.Amounts.Estimates, time.Duration(r.Amounts.Millis) * time.Millisecond, r.Amounts.usage()}
}

var usageTotals = dohost.Collection[totalRow]{
	Name: "dohost.chat.usage",
	Key:  func(r totalRow) string { return usageScope{r.Kind, r.Name}.key() },
}

const (
	// keepUsage is the default of Options.KeepUsage.
	keepUsage = 90 * 24 * time.Hour
	// keptDays is the number of days whose totals are kept, today included.
	keptDays = 90
	// keptCalls is the number of rows of calls that are kept.
	keptCalls = 10_000
	// maxModelName bounds the name of a model, in bytes.
	maxModelName = 200
)

func dayOf(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateOnly) }

// firstDay returns the first day whose total is kept.
func firstDay(now int64) string {
	return time.UnixMilli(now).UTC().AddDate(0, 0, 1-keptDays).Format(time.DateOnly)
}

// scopes returns the scopes that a call counts towards. A call counts towards the day on which it began.
func (r *modelCallRow) scopes() []usageScope {
	list := []usageScope{{Kind: agentScope}, {dayScope, dayOf(r.Began)}}
	if r.Message != "" {
		list = append(list, usageScope{replyScope, r.Message})
	}
	return list
}

// putModelCall writes a row in place of the stored one, and adds the difference to the totals, in one batch. A row that is not stored is
// inserted: it gets its number, and old rows are deleted.
func (m *meter) putModelCall(ctx context.Context, row *modelCallRow) error {
	s := m.st.Storage()
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		old, number, err := m.storedCall(ctx, row)
		if err != nil {
			return err
		}
		inserts := number == 0
		for _, scope := range row.scopes() {
			stored, _, err := usageTotals.Get(ctx, s, scope.key())
			if err != nil {
				return err
			}
			total := stored.Value
			total.Kind, total.Name = scope.Kind, scope.Name
			if scope.Kind == agentScope && number == 0 {
				number = total.Last + 1
			}
			isNew := total.Amounts.Calls == 0
			total.Amounts = total.Amounts.add(row.Amounts.minus(old.Amounts))
			total.Last = max(total.Last, number)
			if row.Purpose == PurposeReply {
				total.Step = max(total.Step, number)
			}
			if err := usageTotals.Put(ctx, s, total); err != nil {
				return err
			}
			if isNew && scope.Kind == dayScope {
				if err := expireDays(ctx, s, row.Began); err != nil {
					return err
				}
			}
		}
		written := *row
		written.Number = number
		if err := modelCalls.Put(ctx, s, written); err != nil {
			return err
		}
		if inserts {
			if err := m.expireCalls(ctx, number, row.Began); err != nil {
				return err
			}
		}
		*row = written
		return nil
	})
}

// storedCall returns the stored row of a call and its number, or zero if there is none.
func (m *meter) storedCall(ctx context.Context, row *modelCallRow) (old modelCallRow, number uint64, err error) {
	if row.Number == 0 {
		return old, 0, nil
	}
	stored, ok, err := modelCalls.Get(ctx, m.st.Storage(), modelCallKey(row.Number))
	if err != nil || !ok || !stored.Value.isCall(row) {
		return old, 0, err
	}
	return stored.Value, row.Number, nil
}

// expireDays deletes up to two totals of days that are too old.
func expireDays(ctx context.Context, s *dohost.Storage, now int64) error {
	first := firstDay(now)
	old, err := usageTotals.List(ctx, s, &dohost.Query[totalRow]{Prefix: dohost.KeyOf(string(dayScope)), Limit: 2})
	for _, r := range old {
		if err == nil && r.Value.Name < first {
			_, err = usageTotals.Delete(ctx, s, r.Key)
		}
	}
	return err
}

// expireCalls deletes up to two rows of calls that are too old, or too many. It passes over the rows of calls that run, and ends at the
// first other row that is kept. The total of a reply is deleted with the row of its last call.
func (m *meter) expireCalls(ctx context.Context, newest uint64, now int64) error {
	s := m.st.Storage()
	var expired []modelCallRow
	for r, err := range modelCalls.All(ctx, s, nil) {
		if err != nil {
			return err
		}
		row := r.Value
		tooOld := m.keep >= 0 && row.Began < now-m.keep.Milliseconds()
		if !tooOld && row.Number+keptCalls > newest {
			break
		}
		if row.open() {
			continue
		}
		if expired = append(expired, row); len(expired) == 2 {
			break
		}
	}
	for i := range expired {
		if err := deleteCall(ctx, s, &expired[i]); err != nil {
			return err
		}
	}
	return nil
}

func deleteCall(ctx context.Context, s *dohost.Storage, row *modelCallRow) error {
	if _, err := modelCalls.Delete(ctx, s, modelCallKey(row.Number)); err != nil || row.Message == "" {
		return err
	}
	key := usageScope{replyScope, row.Message}.key()
	total, ok, err := usageTotals.Get(ctx, s, key)
	if err == nil && ok && total.Value.Last == row.Number {
		_, err = usageTotals.Delete(ctx, s, key)
	}
	return err
}

// recordInterrupted marks the calls of earlier incarnations as interrupted, and reports them.
func (m *meter) recordInterrupted(ctx context.Context) error {
	epoch := m.st.Epoch().String()
	open, err := modelCalls.List(ctx, m.st.Storage(), &dohost.Query[modelCallRow]{
		Index: "open", Limit: 100, Where: func(r modelCallRow) bool { return r.Epoch != epoch },
	})
	for _, r := range open { // none after an error
		row := r.Value
		row.Outcome = ModelCallInterrupted
		if err = modelCalls.Put(ctx, m.st.Storage(), row); err != nil {
			return err
		}
		m.reportCall(ctx, &row, row.Amounts)
	}
	return err
}

// reportCall reports a call that has ended, with the amounts that no earlier report has.
func (m *meter) reportCall(ctx context.Context, row *modelCallRow, more usageAmounts) {
	m.st.Report(ctx, "chat:model", slog.String("outcome", string(row.Outcome)), slog.String("purpose", string(row.Purpose)),
		slog.String("model", row.Model), slog.Uint64("call", row.Number), slog.Int64("input_tokens", more.Input),
		slog.Int64("output_tokens", more.Output), slog.Int64("cost", more.Cost), slog.Bool("estimated", row.Amounts.Estimates > 0))
}

// clipName returns the name of a model as it is stored.
func clipName(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxModelName)], "")
}
