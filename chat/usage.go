package chat

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Usage is the use of a model by one call, as its provider bills it. A [Model] reports it with [Prompt].ReportUsage.
type Usage struct {
	Model string // the name at the provider; at most 200 bytes of it are stored
	// InputTokens are all tokens of the prompt, including tokens from the provider's cache, which CachedInputTokens counts.
	InputTokens, CachedInputTokens int64
	// OutputTokens are all tokens of the answer, including the reasoning, which ReasoningTokens counts.
	OutputTokens, ReasoningTokens int64
	// Cost is the price in millionths of a currency that the program chooses: see [Options].Price.
	Cost int64
	// Estimated reports that a number is an estimate.
	Estimated bool
}

// ModelCallOutcome is the state of a [ModelCall]: running, or how the call has ended.
type ModelCallOutcome string

// The outcomes.
const (
	ModelCallRunning     ModelCallOutcome = "running"
	ModelCallCompleted   ModelCallOutcome = "completed"
	ModelCallFailed      ModelCallOutcome = "failed"      // the model, or the receiver of its chunks, has returned an error
	ModelCallStopped     ModelCallOutcome = "stopped"     // its context has ended: a client has stopped the reply, or a time limit
	ModelCallInterrupted ModelCallOutcome = "interrupted" // by the end of an incarnation
)

// Purpose is the reason for a model call.
type Purpose string

// The purposes.
const (
	PurposeReply   Purpose = "reply"   // a step of [Answer]
	PurposeWorker  Purpose = "worker"  // a step of a [Worker], also within a reply
	PurposeSummary Purpose = "summary" // see [History]
)

// ModelCall is a call of a model.
type ModelCall struct {
	Number   uint64 // in the order of the calls of the agent, from 1 without a gap
	Purpose  Purpose
	Worker   string // the name of the worker; empty for other purposes
	Request  string // the id of the request whose reply, or a worker in it, made the call; otherwise empty
	Message  string // the id of the message of that reply; otherwise empty
	Began    time.Time
	Duration time.Duration // until the end of the call, or until the row was last written
	Outcome  ModelCallOutcome
	Usage
}

// TotalUsage is the sum of the calls of a period, an agent or a reply. The Model is empty, and Estimated is set if any call is
// estimated.
type TotalUsage struct {
	Calls     int64
	Estimates int64         // the calls with an estimated number
	Duration  time.Duration // of the calls together, also of those that ran concurrently
	Usage
}

// DailyUsage is the usage of the calls that began on one day.
type DailyUsage struct {
	Day string // in UTC, as 2006-01-02
	TotalUsage
}

// ModelCalls yields the model calls in an agent's object, the oldest first. The agent keeps them for [Options].KeepUsage, and at most
// the last 10,000. Workers in an [agent.Agent] without a conversation have calls, too. ctx must hold the turn of a, or come from
// [dohost.HoldTurn].
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.All].
func ModelCalls(ctx context.Context, a agent.Ref) iter.Seq2[ModelCall, error] {
	return func(yield func(ModelCall, error) bool) {
		st, err := objectOf(a)
		if err != nil {
			yield(ModelCall{}, err)
			return
		}
		for row, err := range modelCalls.All(ctx, st.Storage(), nil) {
			if !yield(row.Value.public(st.Epoch().String()), err) || err != nil {
				return
			}
		}
	}
}

// AgentUsage returns the usage of all model calls in an agent's object since the object was created. [Clear] does not change it. ctx must
// hold the turn of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.Get].
func AgentUsage(ctx context.Context, a agent.Ref) (TotalUsage, error) {
	return usageOf(ctx, a, usageScope{Kind: agentScope})
}

// ReplyUsage returns the usage of the reply with a message, including its continuations and workers. The agent keeps the usage as long as
// the last call of the reply (see [ModelCalls]). It is zero for a reply without a call, and for an unknown message. ctx must hold the turn
// of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.Get].
func ReplyUsage(ctx context.Context, a agent.Ref, message string) (TotalUsage, error) {
	return usageOf(ctx, a, usageScope{replyScope, message})
}

// UsageByDay yields the usage of the last 90 days, including today and the oldest first, without days that have no calls. ctx must hold the
// turn of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.All].
func UsageByDay(ctx context.Context, a agent.Ref) iter.Seq2[DailyUsage, error] {
	return func(yield func(DailyUsage, error) bool) {
		st, err := objectOf(a)
		if err != nil {
			yield(DailyUsage{}, err)
			return
		}
		first := usageScope{dayScope, firstDay(time.Now().UnixMilli())}
		kept := &dohost.Query[totalRow]{Prefix: dohost.KeyOf(string(dayScope)), Start: dohost.Key(first.key())}
		for row, err := range usageTotals.All(ctx, st.Storage(), kept) {
			if !yield(DailyUsage{row.Value.Name, row.Value.public()}, err) || err != nil {
				return
			}
		}
	}
}

// Usage returns the usage of the reply so far: see [ReplyUsage]. ctx must hold the turn.
//
// Errors: the errors of ReplyUsage.
func (r *Reply) Usage(ctx context.Context) (TotalUsage, error) {
	return ReplyUsage(ctx, r.k.base, r.l.row.Message)
}

func usageOf(ctx context.Context, a agent.Ref, s usageScope) (TotalUsage, error) {
	st, err := objectOf(a)
	if err != nil {
		return TotalUsage{}, err
	}
	row, _, err := usageTotals.Get(ctx, st.Storage(), s.key())
	return row.Value.public(), err
}

// objectOf returns the object of an agent.
func objectOf(a agent.Ref) (*dohost.State, error) {
	of, ok := a.(interface{ Object() *dohost.State })
	if !ok {
		return nil, fmt.Errorf("chat: the agent is nil, or hides its method Object: %w", dohost.ErrMisuse)
	}
	return of.Object(), nil
}

// ShowUsage returns an extension with details for operators: the model calls and their totals, as for a chat agent. It is for agents without
// a conversation that run workers, such as the agents of package inbox: see Extensions in [agent.Handlers]. A class of [Bind] already has
// these details: [dohost.Open] returns an error for ShowUsage in it.
func ShowUsage() dohost.ClassExtension {
	return dohost.ClassExtension{
		Kinds: []string{detailUsage, detailModelCall},
		Inspect: func(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			return func(yield func(dohost.Resource, error) bool) { inspectUsage(v, yield) }
		},
		Admin: func(context.Context, *dohost.State, any, *dohost.AdminRequest) (bool, error) { return false, nil },
	}
}
