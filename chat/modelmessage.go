package chat

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// Strategy determines how a model continues its own interrupted text. Text before the results of its last tool calls
// needs no strategy: the prompt ends with those results.
type Strategy string

const (
	// ContinueSyntheticMessage sends the model its interrupted text, and then a user message that asks it to continue. It
	// works with all providers.
	ContinueSyntheticMessage Strategy = "synthetic-message"
	// ContinuePrefill ends the prompt with the model's interrupted text, and relies on the model to continue it. Some
	// providers refuse such a prompt, and with others the model starts over.
	ContinuePrefill Strategy = "prefill"
	// ContinueRetry asks again, without the model's text since its last tool calls. That text stays in the message; the new
	// answer is a separate text after it.
	ContinueRetry Strategy = "retry"
)

// continueText is the text of the synthetic message.
const continueText = "Your last message was cut off. Continue it from exactly where it ends: your next word follows its last " +
	"one. Do not repeat anything, do not begin again, and do not mention the interruption."

// RoleTool is the role of a [ModelMessage] with the results of tool calls.
const RoleTool Role = "tool"

// ModelMessage is a message in the form that providers expect: a message with one role, or the results of the calls in
// the previous message. It has at least one block.
type ModelMessage struct {
	Role   Role
	Blocks []Block
}

// BlockKind is the kind of a [Block].
type BlockKind string

// The kinds of blocks, and which fields each has.
const (
	BlockText       BlockKind = "text"        // Text
	BlockReasoning  BlockKind = "reasoning"   // Text, Metadata; only in a message with calls
	BlockFile       BlockKind = "file"        // URL, MediaType, Name
	BlockToolCall   BlockKind = "tool-call"   // CallID, Name, JSON: the input
	BlockToolResult BlockKind = "tool-result" // CallID, Name, Text: the tool's result; Failed
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
	Metadata  json.RawMessage // from the provider, by its name
}

// Data returns the base64 data of a file with a data: URL.
func (b *Block) Data() (base64 string, ok bool) {
	head, data, found := strings.Cut(b.URL, ",")
	if !found || !strings.HasPrefix(head, "data:") || !strings.HasSuffix(head, ";base64") {
		return "", false
	}
	return data, true
}

// ModelMessages converts the prompt to the form that providers expect: the messages before the reply, and the reply so
// far, step by step, each call with its result. continues reports that the list ends with an interrupted text of the
// model, to be continued by the strategy; an empty strategy means [ContinueSyntheticMessage].
func (p *Prompt) ModelMessages(s Strategy) (list []ModelMessage, continues bool) {
	for i := range p.Messages {
		list = appendSteps(list, &p.Messages[i])
	}
	before := len(list)
	list = appendSteps(list, &p.Partial)
	if len(list) == before || list[len(list)-1].Role != RoleAssistant {
		return list, false
	}
	switch {
	case s == ContinuePrefill:
	case s == ContinueRetry && p.Interrupted:
		return list[:len(list)-1], false
	default:
		list = append(list, ModelMessage{RoleUser, []Block{{Kind: BlockText, Text: continueText}}})
	}
	return list, true
}

// appendSteps appends a message: for one of the assistant, each step and the results of its calls. A message of the
// system has only texts, and one of the user texts and files: providers accept nothing else in them.
func appendSteps(list []ModelMessage, m *Message) []ModelMessage {
	var content, results []Block
	flush := func() {
		if len(results) == 0 { // providers want reasoning only together with calls
			content = slices.DeleteFunc(content, func(b Block) bool { return b.Kind == BlockReasoning })
		}
		if len(content) > 0 {
			list = append(list, ModelMessage{m.Role, content})
		}
		if len(results) > 0 {
			list = append(list, ModelMessage{RoleTool, results})
		}
		content, results = nil, nil
	}
	for _, p := range m.Parts {
		switch t := p.Type(); {
		case t == "step-start":
			flush()
		case t == "text" && p.Text("text") != "":
			content = append(content, Block{Kind: BlockText, Text: p.Text("text")})
		case m.Role == RoleSystem:
		case t == "file":
			content = append(content, Block{
				Kind: BlockFile, URL: p.Text("url"), MediaType: p.Text("mediaType"), Name: p.Text("filename"),
			})
		case m.Role != RoleAssistant, isBudgetCall(p):
		case t == "reasoning":
			content = append(content, Block{Kind: BlockReasoning, Text: p.Text("text"), Metadata: p.Member("providerMetadata")})
		case uimessage.IsCall(p) && !uimessage.ProviderExecuted(p) && p.Text("state") != uimessage.InputStreaming && p.Text("toolCallId") != "":
			id, name := p.Text("toolCallId"), uimessage.ToolName(p)
			content = append(content, Block{Kind: BlockToolCall, CallID: id, Name: name, JSON: inputOf(p)})
			text, failed := toolResultOf(p)
			results = append(results, Block{Kind: BlockToolResult, CallID: id, Name: name, Text: text, Failed: failed})
		}
	}
	flush()
	return list
}

// inputOf returns the input of a call: providers require an object.
func inputOf(p Part) json.RawMessage {
	var o map[string]json.RawMessage
	if raw := p.Member("input"); raw != nil && json.Unmarshal(raw, &o) == nil && o != nil {
		return raw
	}
	return json.RawMessage("{}")
}

// toolResultOf returns the result of a call for the model.
func toolResultOf(p Part) (text string, failed bool) {
	switch p.Text("state") {
	case uimessage.OutputAvailable:
		var s string
		if raw := rawjson.OrNull(p.Member("output")); json.Unmarshal(raw, &s) != nil || string(raw) == "null" {
			return string(raw), false
		}
		return p.Text("output"), false
	case uimessage.OutputError:
		return p.Text("errorText"), true
	case uimessage.OutputDenied:
		return "The user denied this call.", true
	}
	return "This call was not answered.", true
}
