package uimessage

import (
	"encoding/json"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// The states of a tool call's part. A call passes through them in this order, with two exceptions: more outputs may
// follow a preliminary output, and a call that a client runs becomes available again when it is approved.
const (
	InputStreaming    = "input-streaming"
	InputAvailable    = "input-available"
	ApprovalRequested = "approval-requested"
	ApprovalResponded = "approval-responded"
	OutputAvailable   = "output-available"
	OutputError       = "output-error"
	OutputDenied      = "output-denied"
)

// toolRank orders the states of a call: a chunk that does not raise the rank is a repetition.
func toolRank(p Part) int {
	switch p.Text("state") {
	case InputStreaming:
		return 1
	case InputAvailable:
		if Approved(p) {
			return 5
		}
		return 2
	case ApprovalRequested:
		return 3
	case ApprovalResponded:
		return 4
	case OutputAvailable:
		if p.is("preliminary") {
			return 6
		}
		return 7
	case OutputError, OutputDenied:
		return 7
	}
	return 0
}

// HasResult reports whether a part is a call with its final result.
func HasResult(p Part) bool { return toolRank(p) == 7 }

// Approved reports whether a call was approved.
func Approved(p Part) bool {
	var approval struct {
		Approved bool `json:"approved"`
	}
	raw := p.Member("approval")
	return raw != nil && json.Unmarshal(raw, &approval) == nil && approval.Approved
}

// IsCall reports whether a part is a tool call.
func IsCall(p Part) bool { return p.Type() == "dynamic-tool" || strings.HasPrefix(p.Type(), "tool-") }

// ToolName returns the name of the tool that a part calls.
func ToolName(p Part) string {
	if p.Type() == "dynamic-tool" {
		return p.Text("toolName")
	}
	return strings.TrimPrefix(p.Type(), "tool-")
}

// Call returns the part of a call in a message.
func Call(m *Message, id string) (p Part, ok bool) {
	for _, p := range m.Parts {
		if IsCall(p) && p.Text("toolCallId") == id {
			return p, true
		}
	}
	return Part{}, false
}

// ProviderExecuted reports whether the model's provider runs a call.
func ProviderExecuted(p Part) bool { return p.is("providerExecuted") }

// IsPending reports whether a part is a call without a result that the server or a client has to supply.
func IsPending(p Part) bool { return IsCall(p) && !HasResult(p) && !ProviderExecuted(p) }

// CallChunk returns the chunk that makes a call.
func CallChunk(p Part) Chunk {
	call := newChunk("tool-input-available").with("toolCallId", p.Text("toolCallId")).with("toolName", ToolName(p))
	call.set("input", rawjson.OrNull(p.Member("input")))
	if p.Type() == "dynamic-tool" {
		call.set("dynamic", true)
	}
	call.copyMembers(p.object, "providerExecuted", "title")
	return call
}

// resultChunks returns the chunks of a call that has its result.
func resultChunks(p Part) []Chunk {
	call := CallChunk(p)
	out := newChunk("tool-output-available").with("toolCallId", p.Text("toolCallId"))
	switch p.Text("state") {
	case OutputError:
		out = newChunk("tool-output-error").with("toolCallId", p.Text("toolCallId"))
	case OutputDenied:
		out = newChunk("tool-output-denied").with("toolCallId", p.Text("toolCallId"))
	}
	out.copyMembers(p.object, "output", "errorText", "providerExecuted")
	return []Chunk{call, out}
}
