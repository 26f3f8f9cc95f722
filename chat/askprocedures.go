package chat

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// The messages between two agents of an agent tool are procedures: the agents may be on different hosts. Invariants:
//
//	message     from            to              a repetition finds
//	chat.ask    ask fiber       asked agent     the row of the request, by its id
//	chat.cancel cancel fiber    asked agent     the row of the request as ended, or no trace of it
//	chat.answer delivery fiber  caller          the row of the call as ended, by the key of the call
//	chat.progress forwarder     caller          the number of the next chunk in the log of the run
//	chat.watch  a task          asked agent     the forwarder that runs
//
//   - Each message is sent until one attempt has an answer, by a fiber that outlives its incarnation; the last two, which are for clients alone, by
//     a task in memory. It has the same effect however often it arrives, and in any order with the others. So no attempt needs a call id that is
//     stored: the id of the request and the key of the call are in the rows of both agents.
//   - The answer to a message leaves when the effects of the message are durable. So after a lost answer, or a take-over, the repetition finds them.
//   - An attempt of chat.ask may arrive after the chat.cancel of its request: its host was slow, or the connection. So the cancellation of a request
//     whose ask fiber has not ended when the call ends leaves a row of the request that has ended (outgoing.Unsure), and the late attempt finds it. The
//     fiber cannot have an attempt on its way after it ended before the call: it ends with the answer to an attempt, and the row of the request stays
//     known for retainEnded after the end of the request, longer than any attempt.
//   - A function that waits gives an error before an attempt to another host ends, so that its calls do not pile up. OnAsked may take
//     longer: at most maxDeciding of its calls for one request run concurrently.
//
// The order of a request: the row of the call and its ask fiber are one batch; chat.ask; the end of the reply and its delivery fiber are one batch;
// chat.answer; the end of the call. chat.cancel begins after the batch that ends the call.

// answerSpaceTime bounds the wait for space of an answer at the caller. The delivery repeats it.
const answerSpaceTime = 10 * time.Second

// sentAsk is a request of another agent.
type sentAsk struct {
	Request string      `json:"request"`
	Key     string      `json:"key"` // of the call that the answer completes
	Path    []dohost.ID `json:"path"`
	Expires int64       `json:"expires,omitempty"`
	Hidden  bool        `json:"hidden,omitempty"`
	Text    []byte      `json:"text"` // may not be UTF-8
}

// acceptedAsk is the result of a request that the agent has stored, or does not accept.
type acceptedAsk struct {
	Refused string `json:"refused,omitempty"` // the error of the agent for the model
}

// cancelledAsk is the cancellation of a request.
type cancelledAsk struct {
	Request string `json:"request"`
	Unsure  bool   `json:"unsure,omitempty"`
}

// sentAnswer completes a call. Rest are the chunks that the caller may lack.
type sentAnswer struct {
	Key     string          `json:"key"`
	Rest    []progressChunk `json:"rest,omitempty"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   string          `json:"error,omitempty"`
	Unknown bool            `json:"unknown,omitempty"`
}

// sentProgress are chunks of a request.
type sentProgress struct {
	Key    string          `json:"key"`
	Chunks []progressChunk `json:"chunks"`
}

var (
	askProcedure = procedure("ask", func(ctx context.Context, k *conversation, q sentAsk) (acceptedAsk, error) {
		err := k.asked.acceptAsked(ctx, &outgoing{Text: string(q.Text), Address: returnAddress{
			Request: q.Request, Key: q.Key, Path: q.Path, Expires: q.Expires, Hidden: q.Hidden,
		}})
		if r, ok := errors.AsType[*refusedError](err); ok {
			return acceptedAsk{r.text}, nil
		}
		return acceptedAsk{}, err
	})
	cancelProcedure = procedure("cancel", func(ctx context.Context, k *conversation, q cancelledAsk) (struct{}, error) {
		return struct{}{}, k.asked.cancelAsked(ctx, q.Request, q.Unsure)
	})
	answerProcedure = procedure("answer", func(ctx context.Context, k *conversation, a sentAnswer) (struct{}, error) {
		if len(a.Rest) > 0 {
			if _, err := k.sent.takeProgress(ctx, a.Key, a.Rest, true); err != nil {
				return struct{}{}, err
			}
		}
		_, err := k.calls.complete(ctx, &Completion{Key: a.Key, Output: a.Output, Error: a.Error, Unknown: a.Unknown}, answerSpaceTime)
		if errors.Is(err, ErrNoCall) || errors.Is(err, ErrInvalidOutput) {
			return struct{}{}, nil // its message was deleted, or the model has the error
		}
		return struct{}{}, err
	})
	progressProcedure = procedure("progress", func(ctx context.Context, k *conversation, p sentProgress) (progressTaken, error) {
		return k.sent.takeProgress(ctx, p.Key, p.Chunks, false)
	})
	watchProcedure = procedure("watch", func(ctx context.Context, k *conversation, request string) (struct{}, error) {
		if l := k.live; l != nil && l.row.Asked != nil && l.row.Asked.Request == request {
			return struct{}{}, l.forward.start(ctx)
		}
		return struct{}{}, nil // its next run asks
	})
)

// procedure returns a procedure of conversations. isNoChatAgent finds its error for another object.
func procedure[In, Out any](name string, fn func(context.Context, *conversation, In) (Out, error)) dohost.Procedure[In, Out] {
	return dohost.NewProcedure("chat."+name, func(ctx context.Context, object any, in In) (out Out, err error) {
		a, ok := object.(Ref)
		if !ok {
			return out, errNoChatAgent
		}
		return fn(ctx, a.conv(), in)
	})
}

// errNoChatAgent is the error of an id that is not a chat agent.
var errNoChatAgent = &dohost.PublicError{Message: "it is no chat agent", Code: "no_chat_agent"}

// isNoChatAgent reports whether an error is errNoChatAgent, also from another host.
func isNoChatAgent(err error) bool {
	p, ok := errors.AsType[*dohost.PublicError](err)
	return ok && p.Code == errNoChatAgent.Code
}

// callAgent calls a procedure without a result of another agent.
func callAgent[In any](ctx context.Context, s *shared, id dohost.ID, p dohost.Procedure[In, struct{}], in In) error {
	_, err := p.Call(ctx, s.object(), id, in, nil)
	return err
}

// sendRequest sends a request to another agent.
func (k *sentRequests) sendRequest(ctx context.Context, q *outgoing) error {
	a := &q.Address
	r, err := askProcedure.Call(ctx, k.object(), q.To, sentAsk{a.Request, a.Key, a.Path, a.Expires, a.Hidden, []byte(q.Text)}, nil)
	if err == nil && r.Refused != "" {
		err = &refusedError{r.Refused}
	}
	return err
}

// isOnItsWay reports whether the request or the task of a call may be on its way: the fiber that sends it has not ended. It is called in the batch that
// ends the call.
func (k *sentRequests) isOnItsWay(ctx context.Context, key string) (bool, error) {
	f, ok, err := k.base.Fibers().GetByKey(ctx, "ask/"+key)
	return ok && f.Status != agent.FiberCompleted, err
}
