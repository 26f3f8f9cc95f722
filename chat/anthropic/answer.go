package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// reasoningMetadata is the provider's metadata of a reasoning: a signature, or the encrypted reasoning.
type reasoningMetadata struct {
	Anthropic struct {
		Signature    string `json:"signature,omitempty"`
		RedactedData string `json:"redactedData,omitempty"`
	} `json:"anthropic"`
}

// contentOf returns a message in the API's form. The API refuses blank texts, so they are left out. It refuses files
// of the assistant, so a text mentions them.
func (m *Model) contentOf(of *chat.ModelMessage, newest bool) (list []sdk.ContentBlockParamUnion, err error) {
	for i := range of.Blocks {
		switch b := &of.Blocks[i]; b.Kind {
		case chat.BlockText:
			if strings.TrimSpace(b.Text) != "" {
				list = append(list, sdk.NewTextBlock(b.Text))
			}
		case chat.BlockReasoning:
			var t reasoningMetadata
			if b.Metadata == nil || json.Unmarshal(b.Metadata, &t) != nil {
				continue // from another provider
			}
			if t.Anthropic.Signature != "" {
				list = append(list, sdk.NewThinkingBlock(t.Anthropic.Signature, b.Text))
			} else if t.Anthropic.RedactedData != "" {
				list = append(list, sdk.NewRedactedThinkingBlock(t.Anthropic.RedactedData))
			}
		case chat.BlockToolCall:
			list = append(list, sdk.NewToolUseBlock(b.CallID, b.JSON, b.Name))
		case chat.BlockToolResult:
			list = append(list, sdk.NewToolResultBlock(b.CallID, b.Text, b.Failed))
		case chat.BlockFile:
			file, ok := fileOf(b)
			if !ok || of.Role == chat.RoleAssistant {
				text, err := m.provider.Omitted(b, newest)
				if err != nil {
					return nil, err
				}
				file = sdk.NewTextBlock(text)
			}
			list = append(list, file)
		}
	}
	return list, nil
}

// fileOf returns a file in the API's form, if the API accepts its type.
func fileOf(b *chat.Block) (_ sdk.ContentBlockParamUnion, ok bool) {
	data, inline := b.Data()
	switch isImage := strings.HasPrefix(b.MediaType, "image/"); {
	case isImage && inline:
		return sdk.NewImageBlockBase64(b.MediaType, data), true
	case isImage:
		return sdk.NewImageBlock(sdk.URLImageSourceParam{URL: b.URL}), true
	case b.MediaType == "application/pdf" && inline:
		return sdk.NewDocumentBlock(sdk.Base64PDFSourceParam{Data: data}), true
	case b.MediaType == "application/pdf":
		return sdk.NewDocumentBlock(sdk.URLPDFSourceParam{URL: b.URL}), true
	}
	return sdk.ContentBlockParamUnion{}, false
}

// answer is an answer of the provider, while it streams.
type answer struct {
	id        string // unique among all answers
	trimSpace bool   // drop leading spaces
	yield     func(chat.Chunk, error) bool
	report    func(chat.Usage)
	usage     chat.Usage
	complete  bool
	stop      sdk.StopReason

	blocks    map[int64]*block
	emptyCall *block // a call without input; the end of the answer reports whether the input was cut off
}

// block is a content block of an answer.
type block struct {
	kind     string
	id, name string // of a call
	input    string
}

// finishReasons are the reasons of a model that stopped early, in the words of the AI SDK.
var finishReasons = map[sdk.StopReason]string{
	sdk.StopReasonMaxTokens: "length", sdk.StopReasonModelContextWindowExceeded: "length", sdk.StopReasonRefusal: "content-filter",
}

// add handles an event, and reports whether the consumer wants more. It ignores unknown events.
func (a *answer) add(e *sdk.MessageStreamEventUnion) bool {
	switch e.Type {
	case "message_start":
		u := &e.Message.Usage
		a.addUsage(e.Message.Model, u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens)
		a.report(a.usage)
	case "content_block_start":
		return a.call(false) && a.begin(e)
	case "content_block_delta":
		return a.delta(e)
	case "content_block_stop":
		return a.end(e.Index)
	case "message_delta":
		a.stop = e.Delta.StopReason
		u := &e.Usage
		a.addUsage("", u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens)
	case "message_stop":
		a.complete = true
		if !a.call(finishReasons[a.stop] != "") {
			return false
		}
		a.report(a.usage)
		if why := finishReasons[a.stop]; why != "" {
			return a.yield(chat.FinishReason(why), nil)
		}
	}
	return true
}

// addUsage sets the numbers of the usage so far. The provider counts the cached input apart, and the later event may lack the input.
func (a *answer) addUsage(model string, input, created, read, output int64) {
	if a.usage.Model == "" {
		a.usage.Model = model
	}
	if input+created+read > 0 {
		a.usage.InputTokens, a.usage.CachedInputTokens = input+created+read, read
	}
	a.usage.OutputTokens = max(a.usage.OutputTokens, output)
}

// partID returns the id of a part, unique among all answers.
func (a *answer) partID(index int64) string { return fmt.Sprintf("%s-%d", a.id, index) }

func (a *answer) begin(e *sdk.MessageStreamEventUnion) bool {
	if a.blocks == nil {
		a.blocks = map[int64]*block{}
	}
	if a.blocks[e.Index] != nil {
		return true
	}
	b := &block{kind: e.ContentBlock.Type, id: e.ContentBlock.ID, name: e.ContentBlock.Name}
	a.blocks[e.Index] = b
	switch b.kind {
	case "tool_use":
		return a.yield(chat.ToolInputStart(b.id, b.name), nil)
	case "redacted_thinking":
		return a.addReasoning(e.Index, "", func(t *reasoningMetadata) { t.Anthropic.RedactedData = e.ContentBlock.Data })
	}
	return true
}

func (a *answer) delta(e *sdk.MessageStreamEventUnion) bool {
	b := a.blocks[e.Index]
	if b == nil {
		return true
	}
	switch e.Delta.Type {
	case "text_delta":
		text := e.Delta.Text
		if a.trimSpace {
			text = strings.TrimLeft(text, " \t\r\n")
			a.trimSpace = text == ""
		}
		return text == "" || a.yield(chat.TextDelta(a.partID(e.Index), text), nil)
	case "thinking_delta":
		return a.addReasoning(e.Index, e.Delta.Thinking, nil)
	case "signature_delta":
		return a.addReasoning(e.Index, "", func(t *reasoningMetadata) { t.Anthropic.Signature = e.Delta.Signature })
	case "input_json_delta":
		b.input += e.Delta.PartialJSON
		if b.kind == "tool_use" && e.Delta.PartialJSON != "" {
			return a.yield(chat.ToolInputDelta(b.id, e.Delta.PartialJSON), nil)
		}
	}
	return true
}

// addReasoning adds to a reasoning.
func (a *answer) addReasoning(index int64, text string, set func(*reasoningMetadata)) bool {
	var metadata json.RawMessage
	if set != nil {
		var t reasoningMetadata
		set(&t)
		var err error
		if metadata, err = json.Marshal(t); err != nil {
			a.yield(chat.Chunk{}, err)
			return false
		}
	}
	return a.yield(chat.ReasoningDelta(a.partID(index), text, metadata), nil)
}

func (a *answer) end(index int64) bool {
	b := a.blocks[index]
	if b == nil {
		return true
	}
	switch b.kind {
	case "text":
		return a.yield(chat.TextEnd(a.partID(index)), nil)
	case "thinking", "redacted_thinking":
		return a.yield(chat.ReasoningEnd(a.partID(index)), nil)
	case "tool_use":
		if b.input == "" {
			a.emptyCall = b
			return true
		}
		return a.yield(chat.ToolInput(b.id, b.name, b.input), nil)
	}
	return true
}

// call yields the call without input, if there is one.
func (a *answer) call(cut bool) bool {
	b := a.emptyCall
	a.emptyCall = nil
	return b == nil || a.yield(chat.ToolInput(b.id, b.name, provider.Input("", cut)), nil)
}
