package uimessage

import (
	"maps"

	"github.com/dohost/dohost/chat/internal/rawjson"
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
func (c Chunk) MarshalJSON() ([]byte, error) { return rawjson.Encode(c.object) }

func newChunk(kind string) Chunk { return Chunk{object{}}.with("type", kind) }

// MaxNesting bounds the nesting of a chunk, and so of each part of a message that chunks make.
const MaxNesting = 100

// with sets a member of a chunk that is not shared yet.
func (c Chunk) with(name string, v any) Chunk {
	c.set(name, v)
	return c
}

func (c Chunk) clone() Chunk { return Chunk{maps.Clone(c.object)} }

// MakeChunk makes a chunk of a type. members are names and values in turn; a value is a string, a boolean or JSON as a
// [json.RawMessage], and nil for no member.
func MakeChunk(kind string, members ...any) Chunk {
	c := Chunk{object{}}
	c.setAll(members)
	return c.with("type", kind)
}
