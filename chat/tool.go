package chat

import (
	"encoding/json"
	"strings"
)

// Call of a tool, the states of its part. They go on in this order, except that an output that is
// preliminary may be followed by others, and that a call which a client runs is available again once it is approved.
const (
	inputStreaming    = "input-streaming"
	inputAvailable    = "input-available"
	approvalRequested = "approval-requested"
	approvalResponded = "approval-responded"
	outputAvailable   = "output-available"
	outputError       = "output-error"
	outputDenied      = "output-denied"
)

// toolRank is how far a call has come: what has the same rank as before, or less, is a repetition.
func toolRank(p Part) int {
	switch p.Text("state") {
	case inputStreaming:
		return 1
	case inputAvailable:
		if approved(p) {
			return 5
		}
		return 2
	case approvalRequested:
		return 3
	case approvalResponded:
		return 4
	case outputAvailable:
		if p.is("preliminary") {
			return 6
		}
		return 7
	case outputError, outputDenied:
		return 7
	}
	return 0
}

// settled says that a part is a call that has its outcome.
func settled(p Part) bool { return toolRank(p) == 7 }

// approved reports whether a call was approved.
func approved(p Part) bool {
	var approval struct {
		Approved bool `json:"approved"`
	}
	raw := p.Member("approval")
	return raw != nil && json.Unmarshal(raw, &approval) == nil && approval.Approved
}

// isTool says that a part is a call of a tool.
func isTool(p Part) bool { return p.Type() == "dynamic-tool" || strings.HasPrefix(p.Type(), "tool-") }

// toolName is the name of the tool that a part calls.
func toolName(p Part) string {
	if p.Type() == "dynamic-tool" {
		return p.Text("toolName")
	}
	return strings.TrimPrefix(p.Type(), "tool-")
}

// call is the part of a call.
func (m *Message) call(id string) (p Part, ok bool) {
	for _, p := range m.Parts {
		if isTool(p) && p.Text("toolCallId") == id {
			return p, true
		}
	}
	return Part{}, false
}

// addTool brings a call of a tool on.
func (a *accumulator) addTool(c Chunk) bool {
	id := c.Text("toolCallId")
	next := toolStep(c)
	if id == "" || next.object == nil {
		return false
	}
	p, ok := a.call(id)
	if strings.HasPrefix(c.Type(), "tool-input") {
		a.called[id] = true
	}
	switch {
	case !ok && c.Text("toolName") == "":
		return false // of what was never called
	case !ok:
		p = newPart("tool-" + c.Text("toolName"))
		if c.is("dynamic") {
			p = newPart("dynamic-tool").from(c, "toolName")
		}
		p.set("toolCallId", id)
		a.push(p)
	case c.Type() == "tool-input-available" && p.Text("state") == approvalResponded && approved(p):
	case toolRank(next) < toolRank(p), toolRank(next) == toolRank(p) && !next.is("preliminary"):
		return false
	}
	delete(p.object, "preliminary")
	p.take(c.object, "providerExecuted", "title")
	if meta := c.Member("providerMetadata"); meta != nil {
		p.set("callProviderMetadata", meta)
	}
	p.take(next.object, "state", "input", "rawInput", "output", "errorText", "approval", "preliminary")
	return true
}

// toolStep is what a chunk makes of a call, or the zero Part.
func toolStep(c Chunk) Part {
	state := func(s string) Part { return Part{object{}}.with("state", s) }
	switch c.Type() {
	case "tool-input-start":
		return state(inputStreaming)
	case "tool-input-available":
		return state(inputAvailable).from(c, "input")
	case "tool-input-error":
		p := state(outputError).from(c, "errorText")
		if c.is("dynamic") {
			return p.from(c, "input")
		}
		p.set("rawInput", orNull(c.Member("input")))
		return p
	case "tool-approval-request":
		raw, err := encode(map[string]string{"id": c.Text("approvalId")})
		if err != nil {
			return Part{}
		}
		return state(approvalRequested).with("approval", raw)
	case "tool-output-available":
		return state(outputAvailable).from(c, "output", "preliminary")
	case "tool-output-error":
		return state(outputError).from(c, "errorText")
	case "tool-output-denied":
		return state(outputDenied)
	}
	return Part{}
}
