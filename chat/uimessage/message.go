package uimessage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dohost/dohost/chat/internal/rawjson"
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
		if err := json.Unmarshal(rawjson.OrNull(all[f.name]), f.into); err != nil {
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

// ParseList decodes a client's list of messages.
//
// Errors: the errors of [Message.UnmarshalJSON] and of [CheckID].
func ParseList(raw json.RawMessage) (list []Message, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for _, m := range list {
		if err := CheckID("a message", m.ID); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Check returns the first error in a message from the program.
func Check(m *Message) error {
	if err := CheckID("a message", m.ID); err != nil {
		return err
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
		raw, err := rawjson.Encode(v)
		if err != nil {
			return nil, err
		}
		all[name] = raw
	}
	if m.Metadata != nil {
		all["metadata"] = m.Metadata
	}
	return rawjson.Encode(all)
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

// Join returns one user message in place of several: the last of the sent messages, with the texts of all,
// separated by blank lines, and their other parts.
func Join(earlier []Message, last Message) Message {
	m := last.Clone()
	var texts []string
	var rest []Part
	for _, e := range append(earlier, last) {
		if s := e.PlainText(); s != "" {
			texts = append(texts, s)
		}
		for _, p := range e.Parts {
			if p.Type() != "text" {
				rest = append(rest, p.clone())
			}
		}
	}
	m.Parts = append([]Part{newPart("text").with("text", strings.Join(texts, "\n\n"))}, rest...)
	return m
}

// MaxID bounds the id of a message or a request, in bytes.
const MaxID = 512

// CheckID returns an error for an id of a message or a request that is empty or too long, or that a terminal
// or a log could not print as it is. The error names the owner of the id, such as "a message".
func CheckID(owner, id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("chat: id of %s: %w", owner, err)
	}
	return nil
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("it is empty")
	case len(id) > MaxID:
		return fmt.Errorf("it has %d bytes, the limit is %d", len(id), MaxID)
	case !utf8.ValidString(id):
		return errors.New("it is not valid UTF-8")
	case strings.IndexFunc(id, unicode.IsControl) >= 0:
		return fmt.Errorf("%q contains a control character", id)
	}
	return nil
}
