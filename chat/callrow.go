package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/agenttool"
)

// executor is the party that runs a call.
type executor string

const (
	runsInHandler executor = ""        // the reply's handler, or the program: Answer does not know the call
	runsOnServer  executor = "server"  // Answer
	runsOnClient  executor = "client"  // a client
	runsNowhere   executor = "nowhere" // no tool has the name: Answer sends an error
)

// callRow is a tool call: one row from the chunk that makes the call until its message is deleted. The part of the call in
// its message has the input and the result; the row has the facts that no client may change.
//
// A chunk of a call and the change of its row commit in one batch: see liveReply.add. For a message that is not being
// written, syncCalls derives the rows from the parts, in the batch that stores the message.
type callRow struct {
	Message  string
	ID       string // chosen by the model, and unique in its message
	Reply    string // id of the request whose reply made the call; empty if the program stored it
	Tool     string
	Digest   string // of the tool and the input, as the reply made them; empty if no reply did
	Input    string // the beginning of the input, if there is a digest
	Runs     executor
	Offered  string // id of the request whose reply has sent the call to clients
	State    CallState
	External bool   // Complete supplies the result: see Tool.External
	Async    bool   // an external call whose part has another result, that the model received before
	Attempts int    // runs on the server that began
	Repeats  bool   // an interrupted run is repeated, or the other side is asked
	Key      string // the idempotency key; empty before the first run
	Equal    uint64 // its number among equal calls, when it first ran: see lowestFree
	Certain  bool   // an error of the run proves that the run had no effect, or a repetition is harmless
	Output   string // the JSON of the result of an asynchronous call, or of a late one
	Failure  string // the error of an asynchronous call, or a late one
	Approved bool   // a client has approved it
	Expires  int64  // the end of the wait for an approval, or for Complete; 0 if there is none
	Asks     string `msgpack:",omitempty"` // the agent that the call asks, or the pool of its task, as class/name; empty for other tools
	Role     string `msgpack:",omitempty"` // of the task; empty for agents
	Within   int64  `msgpack:",omitempty"` // the time limit of such a call, in ms; 0 if there is none
	Hidden   bool   `msgpack:",omitempty"` // clients do not see the progress of such a call
	Schema   string `msgpack:",omitempty"` // of the result that a client or another party supplies; empty if any is accepted, and after the end
	KeepLate bool   `msgpack:",omitempty"` // Tool.KeepLate, when the last run began
	Late     bool   `msgpack:",omitempty"` // Output and Failure came after the end of the call
	Created  int64
	Changed  int64
}

// ended reports whether the call has a result.
func (r *callRow) ended() bool {
	switch r.State {
	case CallPending, CallApproval, CallClient, CallRunning, CallExternal:
		return false
	}
	return true
}

// waitsForTask reports whether the call has posted a task, or is about to, and has not ended.
func (r *callRow) waitsForTask() bool { return r.Role != "" && !r.ended() }

// inProgress reports whether the call runs, on the server or elsewhere: no decision has an effect any more.
func (r *callRow) inProgress() bool { return r.State == CallRunning || r.State == CallExternal }

// overdue reports whether the wait of the call should have ended.
func (r *callRow) overdue(now int64) bool { return r.Expires != 0 && r.Expires <= now }

// maxCallKey bounds the part of a call's id that a key contains in clear.
const maxCallKey = 160

// callKey returns the key of a call in its message. A hash replaces a long id: nothing bounds the ids of models.
func callKey(id string) dohost.Key {
	if len(id) <= maxCallKey {
		return dohost.KeyOf(id)
	}
	sum := sha256.Sum256([]byte(id))
	return dohost.KeyOf(id[:maxCallKey] + string(sum[:]))
}

var callRows = dohost.Collection[callRow]{
	Name: "dohost.chat.calls",
	Key:  func(r callRow) string { return string(dohost.KeyOf(r.Message) + callKey(r.ID)) },
	Indexes: []dohost.Index[callRow]{
		{Name: "open", Of: func(r callRow) dohost.Key { return partialKey(!r.ended(), dohost.KeyOf(r.Created)) }},
		{Name: "ended", Of: func(r callRow) dohost.Key { return partialKey(r.ended(), dohost.KeyOf(r.Changed)) }},
		{Name: "waiting", Of: func(r callRow) dohost.Key { return partialKey(!r.ended() && r.State != CallExternal, callKey(r.ID)) }},
		{Name: "asks", Of: func(r callRow) dohost.Key { return partialKey(r.shown(), dohost.KeyOf(r.Created)) }},
		{Name: "task", Of: func(r callRow) dohost.Key {
			if r.Role == "" {
				return ""
			}
			return dohost.KeyOf(agenttool.RequestID(r.Key))
		}},
		{Name: "external", Of: func(r callRow) dohost.Key { return partialKey(r.External, dohost.KeyOf(r.Key)) }},
	},
}

// toolCalls keeps the rows of the tool calls of the stored messages, and applies results, approvals and the ends of their times.
// The calls of the running reply are in its liveReply.
type toolCalls struct {
	*shared
	conv     *conversation
	clients  *clientList
	messages *storedMessages
	sent     *sentRequests

	inOnCall bool // OnCall is running; owned by the goroutine that has the turn
}

// callsOf returns the rows of the calls of a message, by their ids.
func (k *toolCalls) callsOf(ctx context.Context, message string) (map[string]callRow, error) {
	rows := map[string]callRow{}
	of := dohost.KeyOf(message)
	for row, err := range callRows.All(ctx, k.store(), &dohost.Query[callRow]{Start: of, End: of.PrefixEnd()}) {
		if err != nil {
			return nil, err
		}
		rows[row.Value.ID] = row.Value
	}
	return rows, nil
}

// syncCalls makes the rows of a message's calls agree with its parts. by is the request whose reply ends with the message:
// the calls that it made have the input that is stored.
func (k *toolCalls) syncCalls(ctx context.Context, m *Message, by string) error {
	had, err := k.callsOf(ctx, m.ID)
	if err != nil {
		return err
	}
	next := map[string]callRow{}
	now := time.Now().UnixMilli()
	for _, p := range m.Parts {
		id := p.Text("toolCallId")
		old, known := had[id]
		if _, again := next[id]; again || !uimessage.IsCall(p) || !known && !uimessage.IsPending(p) {
			continue
		}
		if !known {
			old = callRow{Message: m.ID, ID: id, Tool: uimessage.ToolName(p), State: CallPending, Created: now, Changed: now}
		}
		row := decided(ctx, &old, old.withPart(p, now))
		if by != "" && row.Reply == by && uimessage.IsPending(p) {
			row = row.made(digestOf(p), p.Member("input"))
		}
		next[id] = row
	}
	return k.replaceCalls(ctx, had, next, m)
}

// callRules returns the rules for answers of clients to the open calls. If needed is false, callRules reads no rows, and the rules
// are those of calls without a row.
func (k *toolCalls) callRules(ctx context.Context, needed bool) (rules uimessage.CallRules, err error) {
	type key struct{ message, call string }
	calls := map[key]callRow{}
	if needed {
		open, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{
			Index: "open", Where: func(r callRow) bool { return r.Runs == runsOnServer || r.Schema != "" },
		})
		if err != nil {
			return rules, err
		}
		for _, r := range open {
			calls[key{r.Value.Message, r.Value.ID}] = r.Value
		}
	}
	return uimessage.CallRules{
		Server: func(message, call string) bool { return calls[key{message, call}].Runs == runsOnServer },
		InProgress: func(message, call string) bool {
			r := calls[key{message, call}]
			return r.inProgress() || r.Tool == budgetTool && !k.options().Budget.ClientsDecide
		},
		Amend: func(message string, f *uimessage.ToolAnswer) {
			r := calls[key{message, f.CallID}]
			_ = r.withoutInvalidOutput(f) // the message has the error
		},
	}, nil
}

// digestOf returns the digest of the call in a part.
func digestOf(p Part) string {
	return string(uimessage.Digest(uimessage.ToolName(p), p.Member("input")))
}

// in changes the state of the row.
func (r callRow) in(s CallState, now int64) callRow {
	if r.State != s {
		if r.Late { // the program has stored another result
			r.Late, r.Output, r.Failure = false, "", ""
		}
		r.State, r.Changed = s, now
	}
	if r.ended() {
		r.Schema = ""
	}
	return r
}

// withPart returns the row of a call whose part is stored. If the part has no result, although the call has begun to run or has
// ended, the program has stored an older copy of the message, or the message with the result could not be stored. Such a call
// never runs: its row keeps the state, and loses the record that a reply made the call.
func (r callRow) withPart(p Part, now int64) callRow {
	result := uimessage.HasResult(p)
	switch {
	case r.Async && result && (r.State == CallExternal || r.ended()), r.State == CallExternal && !result:
		return r
	case !result && (r.Attempts > 0 || r.ended()):
		r.Digest, r.Input, r.Approved = "", "", false
		return r
	}
	r.Approved = r.Approved || uimessage.Approved(p)
	switch p.Text("state") {
	case uimessage.OutputAvailable:
		return r.in(CallCompleted, now)
	case uimessage.OutputDenied:
		return r.in(CallDenied, now)
	case uimessage.OutputError:
		if r.ended() {
			return r
		}
		return r.failed(now)
	case uimessage.ApprovalRequested:
		return r.in(CallApproval, now)
	case uimessage.InputAvailable:
		if r.Runs == runsOnClient {
			return r.in(CallClient, now)
		}
	}
	return r.in(CallPending, now)
}

// withChunk returns the row of a call after a chunk of the reply to a request.
func (r callRow) withChunk(c Chunk, request string, now int64) callRow {
	result := strings.HasPrefix(c.Type(), "tool-output") || c.Type() == "tool-input-error"
	if r.ended() || (r.State == CallRunning || r.State == CallExternal) && !result {
		return r // only a result changes a call that runs, and nothing changes one that has ended
	}
	switch c.Type() {
	case "tool-input-available":
		if r.Digest == "" && r.Reply == request {
			r = r.made(string(uimessage.Digest(r.Tool, c.Member("input"))), c.Member("input"))
		}
		if r.Runs == runsOnClient && r.State == CallPending {
			return r.in(CallClient, now)
		}
	case "tool-approval-request":
		return r.in(CallApproval, now)
	case "tool-output-available":
		switch {
		case string(c.Member("preliminary")) == "true":
		case r.Async:
			return r.in(CallExternal, now)
		default:
			return r.in(CallCompleted, now)
		}
	case "tool-output-denied":
		return r.in(CallDenied, now)
	case "tool-input-error", "tool-output-error":
		return r.failed(now)
	}
	return r
}

// failed returns the row of a call after an error. The outcome of a call that has begun is unknown, unless the error is certain.
func (r callRow) failed(now int64) callRow {
	if (r.State == CallRunning || r.State == CallExternal) && !r.Certain {
		return r.in(CallUnknown, now)
	}
	return r.in(CallFailed, now)
}

// hasCalls reports whether a stored message may have calls.
func hasCalls(r *messageRow) bool { return bytes.Contains(r.JSON, []byte(`"toolCallId"`)) }
