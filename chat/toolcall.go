package chat

import (
	"encoding/json"
	"strings"
)

// The states of a tool call's part. A call passes through them in this order, with two exceptions: more outputs may
// follow a preliminary output, and a call that a client runs becomes available again when it is approved.
const (
	inputStreaming    = "input-streaming"
	inputAvailable    = "input-available"
	approvalRequested = "approval-requested"
	approvalResponded = "approval-responded"
	outputAvailable   = "output-available"
	outputError       = "output-error"
	outputDenied      = "output-denied"
)

// toolRank orders the states of a call: a chunk that does not raise the rank is a repetition.
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

// hasResult reports whether a part is a call with its final result.
func hasResult(p Part) bool { return toolRank(p) == 7 }

// approved reports whether a call was approved.
func approved(p Part) bool {
	var approval struct {
		Approved bool `json:"approved"`
	}
	raw := p.Member("approval")
	return raw != nil && json.Unmarshal(raw, &approval) == nil && approval.Approved
}

// isTool reports whether a part is a tool call.
func isTool(p Part) bool { return p.Type() == "dynamic-tool" || strings.HasPrefix(p.Type(), "tool-") }

// toolName returns the name of the tool that a part calls.
func toolName(p Part) string {
	if p.Type() == "dynamic-tool" {
		return p.Text("toolName")
	}
	return strings.TrimPrefix(p.Type(), "tool-")
}

// call returns the part of a call.
func (m *Message) call(id string) (p Part, ok bool) {
	for _, p := range m.Parts {
		if isTool(p) && p.Text("toolCallId") == id {
			return p, true
		}
	}
	return Part{}, false
}

// addTool advances a tool call.
func (a *accumulator) addTool(c Chunk) bool {
	id := c.Text("toolCallId")
	next := toolStep(c)
	if id == "" || next.object == nil {
		return false
	}
	p, ok := a.call(id)
	if strings.HasPrefix(c.Type(), "tool-input") {
		a.streamedCalls[id] = true
	}
	switch {
	case !ok && c.Text("toolName") == "":
		return false // there is no such call
	case !ok:
		p = newPart("tool-" + c.Text("toolName"))
		if c.is("dynamic") {
			p = newPart("dynamic-tool").copyFrom(c, "toolName")
		}
		p.set("toolCallId", id)
		a.push(p)
	case c.Type() == "tool-input-available" && p.Text("state") == approvalResponded && approved(p):
	case toolRank(next) < toolRank(p), toolRank(next) == toolRank(p) && !next.is("preliminary"):
		return false
	}
	delete(p.object, "preliminary")
	p.copyMembers(c.object, "providerExecuted", "title")
	if meta := c.Member("providerMetadata"); meta != nil {
		p.set("callProviderMetadata", meta)
	}
	p.copyMembers(next.object, "state", "input", "rawInput", "output", "errorText", "approval", "preliminary")
	return true
}

// toolStep returns the members that a chunk sets in a call's part, or the zero Part.
func toolStep(c Chunk) Part {
	state := func(s string) Part { return Part{object{}}.with("state", s) }
	switch c.Type() {
	case "tool-input-start":
		return state(inputStreaming)
	case "tool-input-available":
		return state(inputAvailable).copyFrom(c, "input")
	case "tool-input-error":
		p := state(outputError).copyFrom(c, "errorText")
		if c.is("dynamic") {
			return p.copyFrom(c, "input")
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
		return state(outputAvailable).copyFrom(c, "output", "preliminary")
	case "tool-output-error":
		return state(outputError).copyFrom(c, "errorText")
	case "tool-output-denied":
		return state(outputDenied)
	}
	return Part{}
}
