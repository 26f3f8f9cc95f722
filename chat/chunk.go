package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// Chunk is a piece of a reply's stream: a UIMessageChunk of the AI SDK. The zero Chunk is invalid.
type Chunk struct{ object }

// UnmarshalJSON implements json.Unmarshaler.
//
// Errors: one for JSON that is not an object with a type.
func (c *Chunk) UnmarshalJSON(data []byte) error {
	o, err := parseTyped("chunk", data)
	if err == nil {
		c.object = o
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (c Chunk) MarshalJSON() ([]byte, error) { return encode(c.object) }

func newChunk(kind string) Chunk { return Chunk{object{}}.with("type", kind) }

// with sets a member of a chunk that is not shared yet.
func (c Chunk) with(name string, v any) Chunk {
	c.set(name, v)
	return c
}

func (c Chunk) clone() Chunk { return Chunk{maps.Clone(c.object)} }

// NewChunk makes a chunk of a type, with other members as JSON.
//
// Errors: one for a type that is empty, and for a member that is not JSON.
func NewChunk(kind string, members map[string]any) (Chunk, error) {
	if kind == "" {
		return Chunk{}, errors.New("chat: a chunk without a type")
	}
	c := Chunk{object{}}
	for name, v := range members {
		raw, err := encode(v)
		if err != nil {
			return Chunk{}, fmt.Errorf("chat: %s of a %s chunk: %w", name, kind, err)
		}
		c.object[name] = raw
	}
	return c.with("type", kind), nil
}

// TextDelta adds to a text, and begins the text if it is new.
func TextDelta(id, delta string) Chunk {
	return newChunk("text-delta").with("id", id).with("delta", delta)
}

// TextEnd ends a text. Later text of the model is a separate part.
func TextEnd(id string) Chunk { return newChunk("text-end").with("id", id) }

// ReasoningDelta adds to a reasoning. metadata is for the provider, by its name, or nil.
func ReasoningDelta(id, delta string, metadata json.RawMessage) Chunk {
	c := newChunk("reasoning-delta").with("id", id).with("delta", delta)
	c.set("providerMetadata", metadata)
	return c
}

// ReasoningEnd ends a reasoning.
func ReasoningEnd(id string) Chunk { return newChunk("reasoning-end").with("id", id) }

// ToolInputStart begins a tool call.
func ToolInputStart(call, tool string) Chunk {
	return newChunk("tool-input-start").with("toolCallId", call).with("toolName", tool)
}

// ToolInputDelta is a piece of a call's input, as JSON.
func ToolInputDelta(call, delta string) Chunk {
	return newChunk("tool-input-delta").with("toolCallId", call).with("inputTextDelta", delta)
}

// ToolInput is a complete tool call. Input that is not JSON makes a failed call.
func ToolInput(call, tool, input string) Chunk {
	c := newChunk("tool-input-available").with("toolCallId", call).with("toolName", tool)
	switch raw := json.RawMessage(input); {
	case input == "":
		c.set("input", json.RawMessage("{}"))
	case json.Valid(raw):
		c.set("input", raw)
	default:
		c = newChunk("tool-input-error").with("toolCallId", call).with("toolName", tool).with("input", input).
			with("errorText", "the input is not JSON")
	}
	return c
}

// FinishReason reports why a model stopped early: "length", "content-filter". The reason becomes metadata of the
// message.
func FinishReason(why string) Chunk {
	return newChunk("message-metadata").with("messageMetadata", mustEncode(map[string]string{"finishReason": why}))
}
