package chat

import "github.com/dohost/dohost/chat/uimessage"

const (
	// bytesPerToken is the number of bytes that an estimate counts as a token.
	bytesPerToken = 4
	// fileBytes is the number of bytes that an estimate counts for a file.
	fileBytes = 4 << 10
)

// tokens returns the estimated number of tokens of a text, given its size in bytes.
func tokens(bytes int) int64 { return (int64(bytes) + bytesPerToken - 1) / bytesPerToken }

// promptBytes returns the size of a prompt for an estimate.
func promptBytes(p *Prompt) int {
	n := len(p.System) + messageBytes(&p.Partial)
	for i := range p.Messages {
		n += messageBytes(&p.Messages[i])
	}
	for i := range p.Tools {
		n += len(p.Tools[i].Name) + len(p.Tools[i].Description) + len(p.Tools[i].Parameters)
	}
	return n
}

func messageBytes(m *Message) (n int) {
	for _, p := range m.Parts {
		switch {
		case p.Type() == "text" || p.Type() == "reasoning":
			n += len(p.Text("text"))
		case p.Type() == "file":
			n += fileBytes
		case uimessage.IsCall(p):
			n += len(uimessage.ToolName(p)) + len(p.Member("input")) + len(p.Member("output")) + len(p.Text("errorText"))
		}
	}
	return n
}

// count counts a chunk of the model.
func (u *usageCall) count(c Chunk) {
	switch c.Type() {
	case "text-delta", "reasoning-delta":
		u.bytes += len(c.Text("delta"))
	case "tool-input-delta":
		in := u.input(c.Text("toolCallId"))
		u.bytes += in.to(in.now + len(c.Text("inputTextDelta")))
	case "tool-input-available":
		u.bytes += u.input(c.Text("toolCallId")).to(len(c.Member("input")))
	default:
		return
	}
	u.lacks = true
}

// callInput counts the bytes of the input of a tool call. The input may come in pieces, as a whole, or both; and an answer that is resumed
// may repeat a call.
type callInput struct {
	counted int // bytes
	now     int // bytes of the pieces since the call of the model began
}

// to counts an input that has now bytes, and returns the number of bytes that were not counted before.
func (i *callInput) to(now int) (more int) {
	i.now = max(i.now, now)
	more = max(0, i.now-i.counted)
	i.counted += more
	return more
}

// input returns the input of a call.
func (u *usageCall) input(id string) *callInput {
	if u.inputs == nil {
		u.inputs = map[string]*callInput{}
	}
	in := u.inputs[id]
	if in == nil {
		in = &callInput{}
		u.inputs[id] = in
	}
	return in
}

// countPartial notes the inputs of the calls of an answer that is resumed: its row counts them.
func (u *usageCall) countPartial(m *Message) {
	for _, p := range m.Parts {
		if uimessage.IsCall(p) {
			u.input(p.Text("toolCallId")).counted = len(p.Member("input"))
		}
	}
}
