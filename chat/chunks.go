package chat

import "encoding/json"

// TextDelta adds to a text. One that was not begun is.
func TextDelta(id, delta string) Chunk {
	return newChunk("text-delta").with("id", id).with("delta", delta)
}

// TextEnd ends a text. What a model says after it is a text of its own.
func TextEnd(id string) Chunk { return newChunk("text-end").with("id", id) }

// ReasoningDelta adds to a reasoning. What the provider wants back with it is metadata, by its name, or nil.
func ReasoningDelta(id, delta string, metadata json.RawMessage) Chunk {
	c := newChunk("reasoning-delta").with("id", id).with("delta", delta)
	c.set("providerMetadata", metadata)
	return c
}

// ReasoningEnd ends a reasoning.
func ReasoningEnd(id string) Chunk { return newChunk("reasoning-end").with("id", id) }

// ToolInputStart says that a call of a tool has begun.
func ToolInputStart(call, tool string) Chunk {
	return newChunk("tool-input-start").with("toolCallId", call).with("toolName", tool)
}

// ToolInputDelta is a piece of the input of a call, as JSON.
func ToolInputDelta(call, delta string) Chunk {
	return newChunk("tool-input-delta").with("toolCallId", call).with("inputTextDelta", delta)
}

// ToolInput is a call of a tool, whole. Input that is not JSON makes a call that has failed.
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

// FinishReason says why a model has stopped, if that is not because it had said everything: "length",
// "content-filter". It stands in the metadata of the message.
func FinishReason(why string) Chunk {
	return newChunk("message-metadata").with("messageMetadata", mustEncode(map[string]string{"finishReason": why}))
}
