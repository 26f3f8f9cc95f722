package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// object is a JSON object with a type, whose members are kept as they came.
type object map[string]json.RawMessage

func parseTyped(what string, data []byte) (o object, err error) {
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("chat: a %s is an object: %w", what, err)
	}
	if o.Type() == "" {
		return nil, fmt.Errorf("chat: a %s without a type", what)
	}
	return o, nil
}

// Type returns the type.
func (o object) Type() string { return o.Text("type") }

// Text returns a member that is a string, or "".
func (o object) Text(name string) string {
	var s string
	if raw, ok := o[name]; !ok || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// Member returns a member as JSON, or nil if there is none. It is not to be changed.
func (o object) Member(name string) json.RawMessage { return o[name] }

func (o object) is(name string) bool { return string(o[name]) == "true" }

// set sets a member: to a string, a boolean, or JSON; nil removes it.
func (o object) set(name string, v any) {
	if raw, ok := v.(json.RawMessage); ok {
		if raw == nil {
			delete(o, name)
		} else {
			o[name] = raw
		}
		return
	}
	raw, err := encode(v)
	if err != nil {
		panic(err) // a string or a boolean has JSON
	}
	o[name] = raw
}

// take sets members to those of another object that it has.
func (o object) take(from object, names ...string) {
	for _, n := range names {
		if raw, ok := from[n]; ok {
			o[n] = raw
		}
	}
}

// encode encodes without the escapes that only pages need.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}
