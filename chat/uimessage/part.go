package uimessage

import (
	"fmt"
	"maps"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Part is a part of a message: a text, a reasoning, a tool call, a file, a source, or data of the program's own. Its
// members are preserved unchanged. The zero Part is invalid.
type Part struct{ object }

// MakePart makes a part of a type. members are names and values in turn; a value is a string, a boolean or JSON as a
// [json.RawMessage], and nil for no member.
func MakePart(kind string, members ...any) Part {
	p := Part{object{}}
	p.setAll(members)
	return p.with("type", kind)
}

// Replace returns a copy of the part with a member set to a value, encoded as JSON, or without that member if the value
// is nil. The original part does not change.
//
// Errors: one for a value that cannot be encoded.
func (p Part) Replace(name string, v any) (Part, error) {
	c := p.clone()
	if c.object == nil {
		c.object = object{}
	}
	if v == nil {
		delete(c.object, name)
		return c, nil
	}
	raw, err := rawjson.Encode(v)
	if err != nil {
		return p, fmt.Errorf("chat: %s of a part: %w", name, err)
	}
	c.object[name] = raw
	return c, nil
}

func newPart(kind string) Part { return Part{object{}}.with("type", kind) }

// with sets a member of a part that is not shared yet.
func (p Part) with(name string, v any) Part {
	p.set(name, v)
	return p
}

func (p Part) clone() Part { return Part{maps.Clone(p.object)} }

// UnmarshalJSON implements json.Unmarshaler.
//
// Errors: one for JSON that is not an object with a type.
func (p *Part) UnmarshalJSON(data []byte) error {
	o, err := parseTyped("part", data)
	if err == nil {
		p.object = o
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (p Part) MarshalJSON() ([]byte, error) { return rawjson.Encode(p.object) }
