package uimessage

import (
	"cmp"
	"encoding/json"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// ToolAnswer is a client's answer to a tool call: a result, or an approval.
type ToolAnswer struct {
	CallID    string          `json:"toolCallId"`
	Output    json.RawMessage `json:"output"`
	State     string          `json:"state"`
	ErrorText string          `json:"errorText"`
	Approved  *bool           `json:"approved"`
}

// answerOf returns the answer in a client's copy of a call, if there is one.
func answerOf(p Part) (f ToolAnswer, ok bool) {
	f.CallID = p.Text("toolCallId")
	switch f.State = p.Text("state"); f.State {
	case ApprovalResponded:
		var approval struct {
			Approved *bool `json:"approved"`
		}
		_ = json.Unmarshal(rawjson.OrNull(p.Member("approval")), &approval) // a copy without an approval has no answer
		f.Approved = approval.Approved
		return f, f.Approved != nil
	case OutputDenied:
		f.Approved = new(bool)
	case OutputAvailable:
		f.Output = p.Member("output")
		return f, !p.is("preliminary")
	case OutputError:
		f.ErrorText = p.Text("errorText")
	default:
		return f, false
	}
	return f, true
}

// Effect is the effect of an answer on a call.
type Effect int

const (
	EffectRefused  Effect = iota // the call does not wait for such an answer
	EffectRepeated               // the call has its result, or its approval
	EffectApplied                // the answer changes the call
)

// EffectOn returns the effect of an answer on a call that has not begun to run on the server. A call that waits for an
// approval accepts one, or an error, which refuses the call. An approved call accepts a refusal. A call that a client runs
// accepts a result, and the first one counts; a call that the server runs never accepts a result from a client.
func (f *ToolAnswer) EffectOn(p Part, server bool) Effect {
	state := p.Text("state")
	switch rank := toolRank(p); {
	case f.Approved != nil && !*f.Approved && state == ApprovalResponded:
		return EffectApplied
	case HasResult(p), f.Approved != nil && rank >= 4:
		return EffectRepeated
	case p.is("providerExecuted"), rank < 2 || rank > 5:
		return EffectRefused
	case f.Approved != nil, server, state == ApprovalRequested:
		if state != ApprovalRequested || f.Approved == nil && f.State != OutputError {
			return EffectRefused
		}
	}
	return EffectApplied
}

// Apply changes a call according to the answer.
func (f *ToolAnswer) Apply(p Part) {
	switch {
	case f.Approved != nil:
		setApproval(p, f.CallID, *f.Approved)
	case f.State == OutputError:
		p.set("state", OutputError)
		p.set("errorText", cmp.Or(f.ErrorText, deniedText))
	default:
		p.set("state", OutputAvailable)
		p.set("output", rawjson.OrNull(f.Output))
	}
}

// ExpiredText is the error text of a call whose approval has expired.
const ExpiredText = "The approval expired before a decision."

// deniedText is the error text of a call if a client's error has no text.
const deniedText = "Tool execution denied by user"

// setApproval records an approval or refusal in a call.
func setApproval(p Part, call string, approved bool) {
	var approval map[string]json.RawMessage
	if json.Unmarshal(rawjson.OrNull(p.Member("approval")), &approval) != nil || approval == nil {
		approval = map[string]json.RawMessage{}
	}
	if _, ok := approval["id"]; !ok {
		approval["id"] = rawjson.MustEncode(call)
	}
	approval["approved"] = rawjson.MustEncode(approved)
	p.set("approval", rawjson.MustEncode(approval))
	state := OutputDenied
	if approved {
		state = ApprovalResponded
	}
	p.set("state", state)
}

// Chunk returns the chunk for an answer, or the zero Chunk for an approval, which has none.
func (f *ToolAnswer) Chunk() Chunk {
	switch {
	case f.Approved != nil && *f.Approved:
		return Chunk{}
	case f.Approved != nil:
		return newChunk("tool-output-denied").with("toolCallId", f.CallID)
	case f.State == OutputError:
		return newChunk("tool-output-error").with("toolCallId", f.CallID).with("errorText", cmp.Or(f.ErrorText, deniedText))
	}
	c := newChunk("tool-output-available").with("toolCallId", f.CallID)
	c.set("output", rawjson.OrNull(f.Output))
	return c
}
