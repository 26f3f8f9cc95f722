package uimessage

import (
	"slices"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// CallRuns is the knowledge of a reply about the runs of its calls.
type CallRuns struct {
	Client   func(Part) bool      // reports whether a client runs a call
	Approved func(id string) bool // reports whether a call that the server runs was approved
	External func(id string) bool // reports whether a call was handed over to another party
	Waits    func(id string) bool // reports whether a call runs only after the end of the answer that made it
	Begun    func(id string) bool // reports whether a call runs on the server, or was interrupted
	Repeat   func(id string) bool // reports whether a call that began runs again after an interruption
}

// UnstartedCalls returns the calls without a result that have not begun to run. An interruption leaves them without
// effect.
func (s *Stream) UnstartedCalls(r CallRuns) (calls []Part) {
	for _, p := range s.acc.msg.Parts {
		id := p.Text("toolCallId")
		if IsPending(p) && r.Waits(id) && !r.Begun(id) && !r.External(id) {
			calls = append(calls, p)
		}
	}
	return calls
}

// CanRunCalls reports whether some calls need no client, and have not begun to run or run again.
func (s *Stream) CanRunCalls(r CallRuns) bool {
	return slices.ContainsFunc(s.UnstartedCalls(r), func(p Part) bool {
		state := p.Text("state")
		return state == ApprovalResponded || state == InputAvailable && !r.Client(p)
	}) || slices.ContainsFunc(s.acc.msg.Parts, func(p Part) bool { return IsPending(p) && r.Repeat(p.Text("toolCallId")) })
}

// AbandonedCalls returns error results for tool calls whose executor has ended. waits reports whether other calls
// still wait for a client or another party that runs the tool, or for an approval. With resumes it leaves out calls that have not begun
// to run.
func (s *Stream) AbandonedCalls(r CallRuns, resumes bool) (add []Chunk, waits bool) {
	m := s.Message()
	all, waits := abandonedCalls(&m, r)
	unstarted := map[string]bool{}
	for _, p := range s.UnstartedCalls(r) {
		unstarted[p.Text("toolCallId")] = true
	}
	for _, c := range all {
		isUnstarted := unstarted[c.Text("toolCallId")]
		if resumes && (isUnstarted || r.Repeat(c.Text("toolCallId"))) {
			continue
		}
		if isUnstarted {
			c = c.with("errorText", notRunText)
		}
		if p, ok := s.acc.call(c.Text("toolCallId")); ok && !s.acc.streamedCalls[c.Text("toolCallId")] {
			add = append(add, CallChunk(p)) // the call is in an older message
		}
		add = append(add, c)
	}
	if len(add) > 0 && s.acc.chunks == 0 {
		add = slices.Insert(add, 0, s.merger.start(newChunk("start")))
	}
	return add, waits
}

// abandonedCalls returns error results for tool calls whose executor has ended. waits reports whether other calls
// still wait for a client or another party that runs the tool, or for an approval. Approved calls that have not begun may
// still run, and get no result: also one that the stream has repeated for the clients, whose state is that of an available input again.
func abandonedCalls(m *Message, r CallRuns) (add []Chunk, waits bool) {
	for _, p := range m.Parts {
		if !IsPending(p) {
			continue
		}
		id := p.Text("toolCallId")
		c := newChunk("tool-output-error").with("toolCallId", id)
		switch {
		case r.External(id), p.Text("state") == ApprovalRequested, p.Text("state") == InputAvailable && r.Client(p):
			waits = true
			continue
		case (p.Text("state") == ApprovalResponded || r.Approved(id)) && !r.Begun(id):
			continue // it may run now
		case p.Text("state") == InputStreaming:
			c = newChunk("tool-input-error").with("toolCallId", id).with("toolName", ToolName(p))
			c.set("input", rawjson.OrNull(p.Member("input")))
			if p.Type() == "dynamic-tool" {
				c.set("dynamic", true)
			}
		}
		add = append(add, c.with("errorText", InterruptedText))
	}
	return add, waits
}

// InterruptedChunk returns the result of an interrupted call.
func InterruptedChunk(p Part) Chunk {
	return newChunk("tool-output-error").with("toolCallId", p.Text("toolCallId")).with("errorText", InterruptedText)
}

// InterruptedText is the error text of an interrupted call.
const InterruptedText = "The call was interrupted. Whether it took effect is not known."

// notRunText is the error text of a call that has not begun.
const notRunText = "The call was cut off before it was run."
