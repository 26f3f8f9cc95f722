package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Role is the author of a message.
type Role string

// The roles of messages.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a conversation: a UIMessage of the AI SDK. As JSON it has the members id, role, parts and
// metadata; other members are preserved unchanged.
type Message struct {
	ID       string
	Role     Role
	Parts    []Part
	Metadata json.RawMessage // nil if there is none

	more map[string]json.RawMessage
}

// Text returns a message with one text part.
func Text(id string, r Role, text string) Message {
	return Message{ID: id, Role: r, Parts: []Part{newPart("text").with("text", text)}}
}

// UnmarshalJSON implements json.Unmarshaler.
//
// Errors: one for JSON that is not a message: without an id, one of the three roles, or an array of parts. The bounds
// of ids are checked in messages of clients and before storing: stored messages stay readable if the bounds change.
func (m *Message) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("chat: a message must be a JSON object: %w", err)
	}
	var got Message
	for _, f := range []struct {
		name string
		into any
	}{{"id", &got.ID}, {"role", &got.Role}, {"parts", &got.Parts}} {
		if err := json.Unmarshal(orNull(all[f.name]), f.into); err != nil {
			return fmt.Errorf("chat: %s of a message: %w", f.name, err)
		}
		delete(all, f.name)
	}
	switch {
	case got.ID == "":
		return errors.New("chat: a message has no id")
	case !slices.Contains([]Role{RoleSystem, RoleUser, RoleAssistant}, got.Role):
		return fmt.Errorf("chat: message %q: role %q: want system, user or assistant", got.ID, got.Role)
	case got.Parts == nil:
		return fmt.Errorf("chat: message %q has no parts", got.ID)
	}
	if meta, ok := all["metadata"]; ok {
		got.Metadata = meta
		delete(all, "metadata")
	}
	if len(all) > 0 {
		got.more = all
	}
	*m = got
	return nil
}

// parseSent decodes a client's list of messages.
func parseSent(raw json.RawMessage) (list []Message, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for _, m := range list {
		if err := checkID(m.ID); err != nil {
			return nil, fmt.Errorf("chat: id of a message: %w", err)
		}
	}
	return list, nil
}

// check returns the first error in a message from the program.
func (m *Message) check() error {
	if err := checkID(m.ID); err != nil {
		return fmt.Errorf("chat: id of a message: %w", err)
	}
	if !slices.Contains([]Role{RoleSystem, RoleUser, RoleAssistant}, m.Role) {
		return fmt.Errorf("chat: message %q: role %q: want system, user or assistant", m.ID, m.Role)
	}
	if m.Metadata != nil && !json.Valid(m.Metadata) {
		return fmt.Errorf("chat: message %q: its metadata is not JSON", m.ID)
	}
	for i, p := range m.Parts {
		if p.Type() == "" {
			return fmt.Errorf("chat: message %q: part %d has no type", m.ID, i)
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (m Message) MarshalJSON() ([]byte, error) {
	all := maps.Clone(m.more)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	parts := m.Parts
	if parts == nil {
		parts = []Part{}
	}
	for name, v := range map[string]any{"id": m.ID, "role": m.Role, "parts": parts} {
		raw, err := encode(v)
		if err != nil {
			return nil, err
		}
		all[name] = raw
	}
	if m.Metadata != nil {
		all["metadata"] = m.Metadata
	}
	return encode(all)
}

// Clone returns a copy that shares nothing that can be changed.
func (m Message) Clone() Message {
	c := m
	c.more = maps.Clone(m.more)
	c.Parts = make([]Part, len(m.Parts))
	for i := range m.Parts {
		c.Parts[i] = m.Parts[i].clone()
	}
	return c
}

// PlainText returns the texts of a message, one after the other.
func (m Message) PlainText() string {
	var b bytes.Buffer
	for i := range m.Parts {
		if m.Parts[i].Type() == "text" {
			b.WriteString(m.Parts[i].Text("text"))
		}
	}
	return b.String()
}

// Part is a part of a message: a text, a reasoning, a tool call, a file, a source, or data of the program's own. Its
// members are preserved unchanged. The zero Part is invalid.
type Part struct{ object }

// NewPart makes a part of a type, with its other members encoded as JSON, such as "text" with the member text, or
// "file" with mediaType and url.
//
// Errors: one for an empty type, and one for a member that cannot be encoded.
func NewPart(kind string, members map[string]any) (Part, error) {
	p := Part{object{}}
	if kind == "" {
		return Part{}, errors.New("chat: a part without a type")
	}
	for name, v := range members {
		var err error
		if p, err = p.Replace(name, v); err != nil {
			return Part{}, err
		}
	}
	return p.with("type", kind), nil
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
	raw, err := encode(v)
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
func (p Part) MarshalJSON() ([]byte, error) { return encode(p.object) }
