package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/agenttool"
	"github.com/dohost/dohost/ledger"
)

// askKind is the fiber kind of requests to other agents, of tasks for pools, and of their cancellations.
const askKind agent.FiberKind[outgoing] = "chat.ask"

// outgoing is a request for another agent or a task for a pool, or the cancellation of one.
type outgoing struct {
	To      dohost.ID
	Address returnAddress
	Text    string
	Task    *poolTask `msgpack:",omitempty"` // nil for an agent
	Cancel  bool
	Unsure  bool `msgpack:",omitempty"` // a cancellation: the request or the task may still be on its way
}

// returnAddress is the origin of a request of another agent, and the call that its answer completes.
type returnAddress struct {
	Request string // id of the request at the asked agent
	Key     string // of the call
	Path    []dohost.ID
	Expires int64 // the end of the wait for the answer, in ms; 0 if there is none

	// The progress of the request, for the clients of the caller: see progress.go.
	Hidden bool            `msgpack:",omitempty"` // they do not see it
	Base   uint64          `msgpack:",omitempty"` // the number of the first chunk of the next log
	Next   uint64          `msgpack:",omitempty"` // the number of the first chunk that the caller may lack
	Rest   []progressChunk `msgpack:",omitempty"` // those chunks, of logs that were deleted
	Cut    bool            `msgpack:",omitempty"` // Rest has no space for others, and there is no progress after it
}

// withoutRest returns the address without the rest of the progress.
func (r *returnAddress) withoutRest() *returnAddress {
	if r == nil {
		return nil
	}
	a := *r
	a.Rest = nil
	return &a
}

// caller returns the agent that asks.
func (r *returnAddress) caller() dohost.ID { return r.Path[len(r.Path)-1] }

// over reports whether the wait for the answer has ended.
func (r *returnAddress) over() bool { return r.Expires != 0 && time.Now().UnixMilli() >= r.Expires }

func (r *returnAddress) public() Asked {
	a := Asked{Request: r.Request, From: r.caller(), Path: slices.Clone(r.Path)}
	if r.Expires != 0 {
		a.Deadline = time.UnixMilli(r.Expires)
	}
	return a
}

// ask is a call of an agent tool.
type ask struct {
	target agentOf
	to     string
	text   string
	depth  int
	within time.Duration
	hidden bool // from clients: see AgentToolOptions.Private
}

// askRetry bounds the attempts to send a request, which end with the call. A call without a time limit ends after a day.
var askRetry = dohost.RetryPolicy{
	MaxAttempts: -1, MaxDelay: time.Minute, MaxElapsed: 24 * time.Hour,
	ShouldRetry: func(err error, _ int) bool { return !finalAskError(err) && !finalTaskError(err) },
}

// ask starts the fiber that sends the request of a call. The caller hands the call over in the same batch.
func (l *liveReply) ask(ctx context.Context, call *Call, q *ask) error {
	row := callRow{}
	err := l.retryNoSpace(ctx, func() error {
		if l.ended { // To may have given up the turn
			return ErrReplyOver
		}
		path := l.path()
		if err := agenttool.CheckDepth(path, q.depth); err != nil {
			return ledger.NoEffect(err)
		}
		old := l.calls[call.ID]
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			to, err := q.target(ctx, l.k, call, q.to)
			if err != nil {
				return ledger.NoEffect(err)
			}
			if err := agenttool.CheckCycle(path, to); err != nil {
				return ledger.NoEffect(err)
			}
			row = callAsks(to, q.within, q.hidden)(old)
			if err := l.k.calls.putCall(ctx, old, row, callResult{}); err != nil {
				return err
			}
			return l.k.sent.startAsk(ctx, &outgoing{To: to, Text: q.text, Address: returnAddress{
				Request: agenttool.RequestID(call.Key), Key: call.Key, Path: path, Expires: row.Expires, Hidden: q.hidden,
			}})
		})
		if _, large := errors.AsType[*dohost.LimitError](err); large {
			return ledger.NoEffect(err)
		}
		if err == nil {
			l.setCall(row)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.k.sent.sendRunStart(ctx, &row)
}

// path returns the agents that ask each other, from the first to this one.
func (l *liveReply) path() []dohost.ID {
	self := l.object().ID()
	if l.row.Asked == nil {
		return []dohost.ID{self}
	}
	return append(slices.Clone(l.row.Asked.Path), self)
}

// sentRequests sends the requests of tool calls to other agents and their tasks to pools, cancels them, and keeps the progress of
// their runs.
type sentRequests struct {
	*shared
	calls   *toolCalls
	clients *clientList

	watching map[string]bool // keys of the calls with a running task of watchAsked; owned by the goroutine that has the turn
}

// startAsk starts a fiber that sends a request or a cancellation.
func (k *sentRequests) startAsk(ctx context.Context, q *outgoing) error {
	key := "ask/" + q.Address.Key
	if q.Cancel {
		key = "cancel/" + q.Address.Key
	}
	_, err := agent.StartFiber(ctx, k.base, askKind, *q, &agent.FiberOptions{Key: key})
	return err
}

// sendAsk is the method of askKind.
func (k *sentRequests) sendAsk(ctx context.Context, f *agent.Fiber[outgoing]) error {
	q := f.Checkpoint()
	err := dohost.Retry(ctx, &askRetry, func(ctx context.Context) error {
		switch {
		case q.Cancel && q.Task != nil:
			return k.sendTask(ctx, &q)
		case q.Cancel:
			return callAgent(ctx, k.shared, q.To, cancelProcedure, cancelledAsk{q.Address.Request, q.Unsure})
		}
		row, ok, err := k.calls.externalCall(ctx, q.Address.Key)
		if err != nil || !ok || row.ended() {
			return err
		}
		if q.Task != nil {
			return k.sendTask(ctx, &q)
		}
		return k.sendRequest(ctx, &q)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil || q.Cancel:
		return nil
	}
	_, err = k.calls.complete(ctx, &Completion{Key: q.Address.Key, Error: q.failedText(err), Unknown: q.Task != nil && !refusedTask(err)}, math.MaxInt64)
	if errors.Is(err, ErrNoCall) {
		return nil
	}
	return err
}

// failedText returns the error of a call whose request or task was not sent, for the model.
func (q *outgoing) failedText(err error) string {
	if q.Task != nil {
		return fmt.Sprintf("The call was not posted to the pool %q: %s", q.To.Name, taskErrorText(err))
	}
	return fmt.Sprintf("The agent %v was not asked: %s", q.To, askErrorText(err))
}

// finalAskError reports whether a repetition of a request is useless: the agent has refused it, or there is no such agent.
func finalAskError(err error) bool {
	_, refused := errors.AsType[*refusedError](err)
	return refused || isNoChatAgent(err) || isNoObject(err)
}

// isNoObject reports whether a call and its repetitions have not run, since there is no such object. A program of an older version, without the
// procedure, may be replaced: that error is Retryable.
func isNoObject(err error) bool {
	e, ok := errors.AsType[*dohost.Error](err)
	return ok && e.Outcome == dohost.OutcomeNotRun && !e.Retryable && errors.Is(err, dohost.ErrNotFound)
}

// askErrorText returns the text of an error for the model of the caller.
func askErrorText(err error) string {
	if r, ok := errors.AsType[*refusedError](err); ok {
		return "it refused: " + r.text
	}
	if isNoChatAgent(err) || errors.Is(err, dohost.ErrNotFound) {
		return "there is no such chat agent"
	}
	return "it could not be reached"
}

// callAsks is the event of a call that asks another agent.
func callAsks(to dohost.ID, within time.Duration, hidden bool) callEvent {
	return func(r callRow) callRow {
		r.Asks, r.Within, r.Hidden = to.String(), within.Milliseconds(), hidden
		return r
	}
}

// expiredText returns the error of a call that was not completed within its time.
func (r *callRow) expiredText() string {
	switch within := time.Duration(r.Within) * time.Millisecond; {
	case r.Asks == "":
		return expiredCallText
	case r.Role != "":
		return fmt.Sprintf("The call was not done within %v by a worker of the role %q. Whether it took effect is not known.", within, r.Role)
	default:
		return fmt.Sprintf("The agent %s did not answer within %v. Its request %s may still have effects.",
			r.Asks, within, agenttool.RequestID(r.Key))
	}
}

// stoppedAskText is the error of a call whose reply was stopped.
const stoppedAskText = "The reply was stopped, and the request to the agent with it."

// stoppedTaskText is the text for a stopped call with a task.
const stoppedTaskText = "The reply was stopped, and the task of the call with it."

// cancelAsk starts the fiber that cancels the request or the task of a call that has ended.
func (k *sentRequests) cancelAsk(ctx context.Context, r *callRow) error {
	to, err := dohost.ParseID(r.Asks)
	if err != nil {
		return err
	}
	unsure, err := k.isOnItsWay(ctx, r.Key)
	if err != nil {
		return err
	}
	q := &outgoing{To: to, Cancel: true, Unsure: unsure, Address: returnAddress{Request: agenttool.RequestID(r.Key), Key: r.Key}}
	if r.Role != "" {
		q.Task = &poolTask{Role: r.Role}
	}
	return k.startAsk(ctx, q)
}

// stopAsks ends the calls of a message that wait for other agents or for workers, and cancels their requests. It does not continue the
// message. end applies the error to a call.
func (k *sentRequests) stopAsks(ctx context.Context, calls map[string]callRow, end func(callRow, *uimessage.ToolAnswer) error) error {
	for _, r := range sortedCalls(calls) {
		if r.Asks == "" || r.ended() {
			continue
		}
		if err := k.cancelAsk(ctx, &r); err != nil {
			return err
		}
		text := stoppedAskText
		if r.Role != "" {
			text = stoppedTaskText
		}
		err := end(r, &uimessage.ToolAnswer{CallID: r.ID, State: uimessage.OutputError, ErrorText: text})
		if err != nil {
			return err
		}
	}
	return nil
}

// sortedCalls returns the rows of calls in the order of their ids.
func sortedCalls(calls map[string]callRow) (all []callRow) {
	for _, r := range calls {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b callRow) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// stopAsks ends the calls of a reply that wait for other agents.
func (l *liveReply) stopAsks(ctx context.Context) error {
	return l.retryNoSpace(ctx, func() error {
		return l.k.sent.stopAsks(ctx, l.calls, func(_ callRow, f *uimessage.ToolAnswer) error {
			return l.answer(ctx, &answerFrame{ToolAnswer: *f})
		})
	})
}

// responseJSON returns the result of an agent tool.
func responseJSON(text string) (json.RawMessage, error) {
	return json.Marshal(agenttool.Output{Response: text})
}
