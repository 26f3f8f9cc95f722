package chat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Call is a tool call of a conversation. It exists until its message is deleted.
type Call struct {
	ID      string // chosen by the model
	Message string // id of its message
	Request string // id of the request whose reply made it; empty if the program stored it
	Tool    string
	// Input is the JSON of the input of a call that a reply made: empty while it is incomplete, and only the first 4 KiB of a
	// longer input. The message has the whole input.
	Input string
	// Digest identifies the tool and the input. It is 64 hexadecimal digits; empty while the input is incomplete.
	Digest string
	// Key is an idempotency key for the tool's requests: the same in each run of the call, and different for every other
	// call, even one with the same input. Empty before the first run.
	Key     string
	State   CallState
	Expires time.Time // the end of the wait for an approval, or for [Complete]; zero if there is none
	Created time.Time
	Changed time.Time // the last change of State
	// Output and Error are set by [FindCall] and for OnCall of [Handlers]: the result of the call, or the text of its error.
	Output json.RawMessage
	Error  string
	// Late marks an Output or an Error that came after the call had ended with the state CallUnknown, which stays. The message and
	// the model have a different error. See KeepLate of [Tool].
	Late bool
}

// Calls yields the open calls, the oldest first: calls without a result, and asynchronous calls that wait for [Complete].
func Calls(ctx context.Context, a Ref) iter.Seq2[Call, error] {
	return func(yield func(Call, error) bool) {
		for row, err := range callRows.All(ctx, a.conv().store(), &dohost.Query[callRow]{Index: "open"}) {
			if !yield(row.Value.call(), err) || err != nil {
				return
			}
		}
	}
}

func (r *callRow) call() Call {
	c := Call{
		ID: r.ID, Message: r.Message, Request: r.Reply, Tool: r.Tool, Input: r.Input, Digest: hex.EncodeToString([]byte(r.Digest)),
		Key: r.Key, State: r.State, Late: r.Late, Created: time.UnixMilli(r.Created), Changed: time.UnixMilli(r.Changed),
	}
	if r.Expires != 0 {
		c.Expires = time.UnixMilli(r.Expires)
	}
	if r.Output != "" {
		c.Output = json.RawMessage(r.Output)
	}
	c.Error = r.Failure
	return c
}

// callResult is the result of a call in a chunk or in a part.
type callResult struct {
	output  json.RawMessage
	failure string
}

// resultIn returns the result in a chunk or in a part; the zero callResult if there is none.
func resultIn(v interface {
	Member(string) json.RawMessage
	Text(string) string
}) callResult {

	return callResult{v.Member("output"), v.Text("errorText")}
}

// callOnCall calls OnCall after a change of a call's state, or for a late result, in the transaction of the change. An error rolls back the writes of
// OnCall alone, except if a repetition of the change may succeed.
func (k *toolCalls) callOnCall(ctx context.Context, row *callRow, result callResult) error {
	c := row.call()
	if row.ended() && !row.Async && !row.Late {
		c.Output, c.Error = result.output, cmp.Or(result.failure, c.Error)
	}
	c.Output = bytes.Clone(c.Output) // OnCall may change it
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		k.inOnCall = true
		defer func() { k.inOnCall = false }()
		return k.class.called(k.owner, ctx, c)
	})
	switch {
	case err == nil || noSpace(err) || errors.Is(err, dohost.ErrFenced):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	k.object().Report(ctx, "chat:failed", slog.String("call", row.ID), slog.String("hook", "OnCall"), slog.Any("err", err))
	return nil
}

// checkChange returns an error if the program may not change the conversation: its client is read-only, or it is in OnCall. OnCall would
// be called for the calls in the messages, without an end.
func (k *toolCalls) checkChange(ctx context.Context) error {
	if k.inOnCall {
		return fmt.Errorf("chat: OnCall must not change the conversation: %w", dohost.ErrMisuse)
	}
	return agent.CheckWrite(ctx)
}

// maxCallInput bounds the input in the row of a call, in bytes.
const maxCallInput = 4 << 10

// made records the input of a call that a reply made.
func (r callRow) made(digest string, input json.RawMessage) callRow {
	if digest != "" {
		r.Digest, r.Input = digest, clipText(string(input), maxCallInput)
	}
	return r
}

// clipText returns at most n bytes of a text, and no part of a character.
func clipText(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// CallState is the state of a tool call.
type CallState string

// The states of a call. A call in one of the last five has ended.
const (
	CallPending   CallState = "pending"   // it has not begun to run
	CallApproval  CallState = "approval"  // it waits for an approval
	CallClient    CallState = "client"    // it waits for the result of a client
	CallRunning   CallState = "running"   // the server runs it
	CallExternal  CallState = "external"  // it was handed over, and waits for Complete
	CallCompleted CallState = "completed" // it has a result
	CallFailed    CallState = "failed"    // its result is an error
	CallDenied    CallState = "denied"    // its approval was refused
	CallExpired   CallState = "expired"   // the time to decide has passed without an approval
	CallUnknown   CallState = "unknown"   // it was interrupted, or has failed without a proof: whether it took effect is not known
)

// CallFrom returns the call that the function of a [Tool] runs, with its idempotency key: see [Call]. ok is false for any
// other context.
func CallFrom(ctx context.Context) (c Call, ok bool) {
	of, ok := ctx.Value(callContextKey{}).(callContext)
	return of.call, ok
}
