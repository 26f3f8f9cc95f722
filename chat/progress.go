package chat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/agenttool"
)

// The clients of an agent that asks another one (the caller) see the progress of each request at the asked agent, in frames of the
// type agent-tool-event. Clients ignore an event of a run with a known sequence. Invariants:
//
//   - The row of the call is the run. Its first event (started) leaves with the batch that writes the asked agent into the row, and
//     its last event with the batch that ends the call. A replay makes both from the row and from the part of the call.
//   - The log of the progress at the caller has the chunks between them. It only grows: a client that has received some events
//     of a run has received the log from its beginning. A chunk is in the log before a client gets it, and its place in the log
//     is the sequence of its event. So no sequence has two contents, and a replay is the log.
//   - The asked agent sends chunks that are durable in the log of its reply, in order, each with its number in the request. The
//     caller has one number, of the next chunk, and ignores chunks with lower ones. So a repetition has no effect.
//   - The end of a reply deletes its log. The same batch adds the chunks that the caller may lack to the return address, as far as
//     they fit: see returnAddress.Rest. The delivery of the answer, or the reply that continues the message, sends them first.
//   - The caller has a log only if a client was connected. Otherwise the asked agent sends one empty batch for each run of the
//     handler, and nothing is written.
//   - No event waits for the other agent: the asked agent sends chunks from a task (forwarder), and a task of the caller asks for
//     them when a client connects. Both are tasks in memory. If one is lost, the clients get the chunks later: with the next run of
//     the handler, when another client connects, or with the answer.
//
// The chunks of one text in one batch become one chunk, before they are in the log of the caller. The time between batches grows with
// the log, and the log of a run and the number of runs with a log are bounded.
//
// Two chunks are marks of this package. cutChunk is the last chunk of a run with chunks that its log does not get: it takes the place
// of the first of them. restartChunk takes the place of the start chunk of a reply that was restarted: see RecoveryRestart.

const (
	cutChunk     = `{"type":"data-agent-tool-cut","data":{}}`
	restartChunk = `{"type":"data-agent-tool-restart","data":{}}`

	// maxProgressRows and maxProgressBytes bound the log of a run at the caller: its rows, one for each batch, and the bytes of
	// the frames of its chunks, which a new connection receives. A mark is beyond both.
	maxProgressRows  = 256
	maxProgressBytes = 256 << 10
	// progressFrame is the number of bytes of the frame of a chunk, without the chunk and the id of the call.
	progressFrame = 160
	// maxProgressRuns bounds the runs with a log. A further run deletes the log of the oldest ended run; if no run has
	// ended, the further run gets no log.
	maxProgressRuns = 8
	// maxReplayedRuns bounds the runs that a new connection receives: the newest ones.
	maxReplayedRuns = 64
	// maxProgressBatch bounds the JSON of the chunks that the asked agent reads for a batch, and maxRest that of the chunks
	// in a return address.
	maxProgressBatch = 64 << 10
	maxRest          = 64 << 10
	// progressInterval is the time between the first batches of a run. It doubles every 32 batches.
	progressInterval = 200 * time.Millisecond
	// maxRunSummary bounds the text of an answer in an event, in bytes.
	maxRunSummary = 8 << 10
	// lastSequence is the sequence of the last event of a run: greater than the sequence of any chunk.
	lastSequence = 1 << 32
)

// frameAgentTool is the type of the frames about requests to other agents.
const frameAgentTool = "agent-tool-event"

// agentToolFrame is an event of a request to another agent.
type agentToolFrame struct {
	Type     string         `json:"type"`
	Call     string         `json:"parentToolCallId"`
	Sequence uint64         `json:"sequence"`
	Event    agentToolEvent `json:"event"`
	Replay   bool           `json:"replay,omitempty"`
}

// agentToolEvent has the members of all kinds of events.
type agentToolEvent struct {
	Kind         string          `json:"kind"`
	Run          string          `json:"runId"` // the id of the request
	AgentType    string          `json:"agentType,omitempty"`
	InputPreview json.RawMessage `json:"inputPreview,omitempty"`
	Order        *int            `json:"order,omitempty"`
	Body         string          `json:"body,omitempty"`
	Summary      *string         `json:"summary,omitempty"`
	Error        string          `json:"error,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	StillRunning bool            `json:"childStillRunning,omitempty"`
}

// progressChunk is a chunk of a request, or the joined deltas of one text.
type progressChunk struct {
	Number uint64 // of the last chunk in it, from 0 in the request
	JSON   []byte
}

// shown reports whether clients see the progress of the call.
func (r *callRow) shown() bool { return r.Asks != "" && !r.Hidden }

// startFrame returns the first event of a run.
func (r *callRow) startFrame(replay bool) agentToolFrame {
	input := json.RawMessage(r.Input)
	switch {
	case r.Input == "":
		input = nil
	case !json.Valid(input): // the beginning of a long one
		input = rawjson.MustEncode(r.Input)
	}
	class := r.Asks
	if id, err := dohost.ParseID(r.Asks); err == nil {
		class = id.Class
	}
	return agentToolFrame{frameAgentTool, r.ID, 0, agentToolEvent{
		Kind: "started", Run: agenttool.RequestID(r.Key), AgentType: class, InputPreview: input, Order: new(int),
	}, replay}
}

// chunkFrame returns the event of a chunk at a place of the log.
func (r *callRow) chunkFrame(place uint64, chunk []byte, replay bool) agentToolFrame {
	return agentToolFrame{frameAgentTool, r.ID, place, agentToolEvent{Kind: "chunk", Run: agenttool.RequestID(r.Key), Body: string(chunk)}, replay}
}

// endFrame returns the last event of a run. p is the part of the call, with its result.
func (r *callRow) endFrame(p Part, replay bool) agentToolFrame {
	e := agentToolEvent{Run: agenttool.RequestID(r.Key)}
	switch text := clipText(cmp.Or(p.Text("errorText"), r.Failure), maxRunSummary); { // a full message has no space for the error
	case p.Text("state") == uimessage.OutputAvailable:
		var out agenttool.Output
		_ = json.Unmarshal(p.Member("output"), &out) // a shortened output has no response
		summary := clipText(out.Response, maxRunSummary)
		e.Kind, e.Summary = "finished", &summary
	case text == stoppedAskText || text == withdrawnText || text == fmt.Sprintf(stoppedReplyText, r.Asks):
		e.Kind, e.Reason = "aborted", text
	case text == clipText(r.expiredText(), maxRunSummary):
		e.Kind, e.Error, e.Reason, e.StillRunning = "interrupted", text, "window-exceeded", true
	default:
		e.Kind, e.Error = "error", text
	}
	return agentToolFrame{frameAgentTool, r.ID, lastSequence, e, replay}
}
