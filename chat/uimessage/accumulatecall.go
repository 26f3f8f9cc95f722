package uimessage

import (
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

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
	case c.Type() == "tool-input-available" && p.Text("state") == ApprovalResponded && Approved(p):
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
		return state(InputStreaming)
	case "tool-input-available":
		return state(InputAvailable).copyFrom(c, "input")
	case "tool-input-error":
		p := state(OutputError).copyFrom(c, "errorText")
		if c.is("dynamic") {
			return p.copyFrom(c, "input")
		}
		p.set("rawInput", rawjson.OrNull(c.Member("input")))
		return p
	case "tool-approval-request":
		raw, err := rawjson.Encode(map[string]string{"id": c.Text("approvalId")})
		if err != nil {
			return Part{}
		}
		return state(ApprovalRequested).with("approval", raw)
	case "tool-output-available":
		return state(OutputAvailable).copyFrom(c, "output", "preliminary")
	case "tool-output-error":
		return state(OutputError).copyFrom(c, "errorText")
	case "tool-output-denied":
		return state(OutputDenied)
	}
	return Part{}
}
