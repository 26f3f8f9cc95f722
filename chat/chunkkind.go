package chat

// ChunkKind is the kind of a chunk, for readers that do not know all of the AI SDK's types.
type ChunkKind string

// The kinds of chunks. For a tool call a model may yield only its end, which has the whole input.
const (
	ChunkText          ChunkKind = "text"            // a piece of the text: text-delta, with the member "delta"
	ChunkThinking      ChunkKind = "thinking"        // reasoning-start, reasoning-delta, with the member "delta", and reasoning-end
	ChunkToolCallStart ChunkKind = "tool-call-start" // tool-input-start, with the members "toolCallId" and "toolName"
	ChunkToolCallArgs  ChunkKind = "tool-call-args"  // a piece of the input as JSON: tool-input-delta, with the member "inputTextDelta"
	ChunkToolCallEnd   ChunkKind = "tool-call-end"   // the whole input: tool-input-available, or tool-input-error if it is not valid
	ChunkOther         ChunkKind = "other"           // any other: the start and the end of a text, results, files, sources, metadata, data, finish
)

var chunkKinds = map[string]ChunkKind{
	"text-delta":           ChunkText,
	"reasoning-start":      ChunkThinking,
	"reasoning-delta":      ChunkThinking,
	"reasoning-end":        ChunkThinking,
	"tool-input-start":     ChunkToolCallStart,
	"tool-input-delta":     ChunkToolCallArgs,
	"tool-input-available": ChunkToolCallEnd,
	"tool-input-error":     ChunkToolCallEnd,
}

// KindOf returns the kind of a chunk. The text of a generation has its chunks of the kind text, in their order.
func KindOf(c Chunk) ChunkKind {
	if kind, ok := chunkKinds[c.Type()]; ok {
		return kind
	}
	return ChunkOther
}
