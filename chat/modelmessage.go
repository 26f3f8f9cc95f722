package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// Strategy is how a model is asked to go on with a text of its own that was cut off in the middle. What it had
// said before its last tools had their outcomes needs none: it is asked with those outcomes.
type Strategy string

const (
	// SyntheticMessage shows the model what it has said, and then a message of the user that asks it to go on.
	// It works with all providers.
	SyntheticMessage Strategy = "synthetic-message"
	// Prefill ends with what the model has said, and trusts that it goes on in that. Some providers refuse it,
	// and with others the model begins anew.
	Prefill Strategy = "prefill"
	// Retry asks again, without what the model has said since its last tools. That stays, and what the model says
	// now is a text of its own behind it.
	Retry Strategy = "retry"
)

// goOnText is what the synthetic message says.
const goOnText = "Your last message was cut off. Continue it from exactly where it ends: your next word follows its last " +
	"one. Do not repeat anything, do not begin again, and do not mention the interruption."

// Outcomes is the role of a [ModelMessage] that tells outcomes of calls.
const Outcomes Role = "tool"

// ModelMessage is what one side has said, or the outcomes of the calls in the message before, as providers of models
// want to have it. It has at least one block.
type ModelMessage struct {
	Role   Role
	Blocks []Block
}

// BlockKind says what a [Block] is.
type BlockKind string

// The kinds of blocks, and which fields each has.
const (
	TextBlock      BlockKind = "text"      // Text
	ReasoningBlock BlockKind = "reasoning" // Text, Metadata; only in a message with calls
	FileBlock      BlockKind = "file"      // URL, MediaType, Name
	CallBlock      BlockKind = "call"      // CallID, Name, JSON: the input
	OutcomeBlock   BlockKind = "outcome"   // CallID, Name, Text: what the tool has answered; Failed
)

// Block is a piece of a [ModelMessage].
type Block struct {
	Kind      BlockKind
	Text      string
	URL       string
	MediaType string
	Name      string
	CallID    string
	JSON      json.RawMessage
	Failed    bool
	Metadata  json.RawMessage // what the provider has said with it, by its name
}

// Data is what a data: URL of a file has, in base64.
func (b *Block) Data() (base64 string, ok bool) {
	head, data, found := strings.Cut(b.URL, ",")
	if !found || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return "", false
	}
	return data, true
}

// ModelMessages is the prompt as a provider wants to have it: what was said before, and what the reply has
// said so far, step by step, each call with its outcome. goesOn says that it ends with a text of the model's,
// with which that is to go on as the strategy says; empty means [SyntheticMessage].
func (p *Prompt) ModelMessages(s Strategy) (list []ModelMessage, goesOn bool) {
	for i := range p.Messages {
		list = appendSteps(list, &p.Messages[i])
	}
	before := len(list)
	list = appendSteps(list, &p.Partial)
	if len(list) == before || list[len(list)-1].Role != Assistant {
		return list, false
	}
	switch {
	case s == Prefill:
	case s == Retry && p.Cut:
		return list[:len(list)-1], false
	default:
		list = append(list, ModelMessage{User, []Block{{Kind: TextBlock, Text: goOnText}}})
	}
	return list, true
}

// appendSteps appends a message: of one of the assistant each step, and the outcomes of its calls. A message of the
// system has texts only, and one of the user texts and files: providers accept nothing else in them.
func appendSteps(list []ModelMessage, m *Message) []ModelMessage {
	var said, outcomes []Block
	flush := func() {
		if len(outcomes) == 0 { // reasoning is for the provider to have its calls back with
			said = slices.DeleteFunc(said, func(b Block) bool { return b.Kind == ReasoningBlock })
		}
		if len(said) > 0 {
			list = append(list, ModelMessage{m.Role, said})
		}
		if len(outcomes) > 0 {
			list = append(list, ModelMessage{Outcomes, outcomes})
		}
		said, outcomes = nil, nil
	}
	for _, p := range m.Parts {
		switch t := p.Type(); {
		case t == "step-start":
			flush()
		case t == "text" && p.Text("text") != "":
			said = append(said, Block{Kind: TextBlock, Text: p.Text("text")})
		case m.Role == System:
		case t == "file":
			said = append(said, Block{
				Kind: FileBlock, URL: p.Text("url"), MediaType: p.Text("mediaType"), Name: p.Text("filename"),
			})
		case m.Role != Assistant:
		case t == "reasoning":
			said = append(said, Block{Kind: ReasoningBlock, Text: p.Text("text"), Metadata: p.Member("providerMetadata")})
		case isTool(p) && !p.is("providerExecuted") && p.Text("state") != inputStreaming && p.Text("toolCallId") != "":
			id, name := p.Text("toolCallId"), toolName(p)
			said = append(said, Block{Kind: CallBlock, CallID: id, Name: name, JSON: inputOf(p)})
			text, failed := outcomeOf(p)
			outcomes = append(outcomes, Block{Kind: OutcomeBlock, CallID: id, Name: name, Text: text, Failed: failed})
		}
	}
	flush()
	return list
}

// inputOf is the input of a call: providers want an object.
func inputOf(p Part) json.RawMessage {
	var o map[string]json.RawMessage
	if raw := p.Member("input"); raw != nil && json.Unmarshal(raw, &o) == nil && o != nil {
		return raw
	}
	return json.RawMessage("{}")
}

// outcomeOf is what a model is told of a call.
func outcomeOf(p Part) (text string, failed bool) {
	switch p.Text("state") {
	case outputAvailable:
		var s string
		if raw := orNull(p.Member("output")); json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
			return string(raw), false
		}
		return p.Text("output"), false
	case outputError:
		return p.Text("errorText"), true
	case outputDenied:
		return "The user has not allowed this call.", true
	}
	return "Nobody has answered this call.", true
}
