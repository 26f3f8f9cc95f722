package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// Chunk is a piece of a reply's stream: a UIMessageChunk of the AI SDK. The zero Chunk is invalid. It is an alias, so
// that a program imports this package alone; [uimessage.Chunk] lists its methods.
type Chunk = uimessage.Chunk

// NewChunk makes a chunk of a type, with other members as JSON.
//
// Errors: one for a type that is empty, and for a member that is not JSON.
func NewChunk(kind string, members map[string]any) (Chunk, error) {
	if kind == "" {
		return Chunk{}, errors.New("chat: a chunk without a type")
	}
	var all []any
	for name, v := range members {
		raw, err := rawjson.Encode(v)
		if err != nil {
			return Chunk{}, fmt.Errorf("chat: %s of a %s chunk: %w", name, kind, err)
		}
		all = append(all, name, raw)
	}
	return uimessage.MakeChunk(kind, all...), nil
}

// TextDelta adds to a text, and begins the text if it is new.
func TextDelta(id, delta string) Chunk {
	return uimessage.MakeChunk("text-delta", "id", id, "delta", delta)
}

// TextEnd ends a text. Later text of the model is a separate part.
func TextEnd(id string) Chunk { return uimessage.MakeChunk("text-end", "id", id) }

// ReasoningDelta adds to a reasoning. metadata is for the provider, by its name, or nil.
func ReasoningDelta(id, delta string, metadata json.RawMessage) Chunk {
	return uimessage.MakeChunk("reasoning-delta", "id", id, "delta", delta, "providerMetadata", metadata)
}

// ReasoningEnd ends a reasoning.
func ReasoningEnd(id string) Chunk { return uimessage.MakeChunk("reasoning-end", "id", id) }

// ToolInputStart begins a tool call.
func ToolInputStart(call, tool string) Chunk {
	return uimessage.MakeChunk("tool-input-start", "toolCallId", call, "toolName", tool)
}

// ToolInputDelta is a piece of a call's input, as JSON.
func ToolInputDelta(call, delta string) Chunk {
	return uimessage.MakeChunk("tool-input-delta", "toolCallId", call, "inputTextDelta", delta)
}

// ToolInput is a complete tool call. Input that is not JSON makes a failed call.
func ToolInput(call, tool, input string) Chunk {
	raw := json.RawMessage(input)
	switch {
	case input == "":
		raw = json.RawMessage("{}")
	case !json.Valid(raw):
		return uimessage.MakeChunk("tool-input-error", "toolCallId", call, "toolName", tool, "input", input,
			"errorText", "the input is not JSON")
	}
	return uimessage.MakeChunk("tool-input-available", "toolCallId", call, "toolName", tool, "input", raw)
}

// FinishReason reports why a model stopped early: "length", "content-filter". The reason becomes metadata of the
// message.
func FinishReason(reason string) Chunk {
	return uimessage.MakeChunk("message-metadata", "messageMetadata", rawjson.MustEncode(map[string]string{"finishReason": reason}))
}
