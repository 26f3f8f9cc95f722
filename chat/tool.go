package chat

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dohost/dohost/ledger"
)

// Tool is a tool that runs on the server.
type Tool struct {
	ToolSpec
	// Run runs a call, with the turn, in a task of the object: the calls of a step run concurrently, up to 16 of a reply.
	// ctx has the values of the handler's context, and ends with the reply; [CallFrom] returns the call. The result is
	// encoded as JSON; the model receives the text of an error. Nil means that a client runs the tool.
	Run func(ctx context.Context, input json.RawMessage) (any, error)
	// Policy decides about a call that the end of an incarnation interrupted. Zero means PolicyAtMostOnce: the call does not run
	// again, and the model receives an error which states that the effect is unknown. PolicyIdempotent runs the call again, with the
	// same [Call].Key, up to 5 times in total. PolicyReconcile calls Find, and runs the call again only after AnswerNotDone. An error of
	// Run does not lead to another run. With PolicyAtMostOnce and PolicyReconcile, an error that is not marked with [ledger.NoEffect]
	// leaves the call in the state [CallUnknown]; so does any error after an interruption.
	Policy ledger.Policy
	// Find asks the other side about an interrupted call. Required for PolicyReconcile; nil for the other policies. It is called
	// like Run.
	Find func(ctx context.Context, input json.RawMessage) (any, ledger.Answer, error)
	// Timeout bounds the time of a run and of Find together. After that ctx ends, and the model receives an error. A later
	// result is discarded: see KeepLate. Waits for an approval do not count. Zero means 60 s; negative means no bound.
	Timeout time.Duration
	// KeepLate stores a result that arrives after Timeout, after the end of the reply, or, with External, after Within: see Late
	// of [Call]. The model does not receive it. By default such a result is discarded. Both are reported as chat:late. In a
	// [Worker] it has no effect: the ledger has the result.
	KeepLate bool
	// External makes another party complete the calls, which Run hands off. Nil means that the result of Run is the result of the call.
	External *External
	// Output describes the results. A result that does not match it becomes an error for the model, with the place in the result. It applies
	// to the results of Run, of clients and of [Complete]. The call keeps the schema that it began with. Nil means any result.
	Output *Output
	// Approve makes calls wait for an approval. After it the call runs, or is sent to the clients if Run is nil. Nil means
	// that no call waits.
	Approve *Approval
	// Unrecorded is for a tool of a [Worker] that stores its effects itself, under the Key of its [Call]: a call is not an operation of
	// the ledger, and a repeated run calls the tool again, with the same Key. It needs PolicyIdempotent. [Answer] returns an error
	// for it. If a call returns an [agent.PostponeError], even a wrapped one, the run ends with that error when the other calls of the
	// step have ended.
	Unrecorded bool

	// err and valid are set by NewTool: its error, and the check of an input.
	err   error
	valid func(input json.RawMessage) error
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON schema
}
