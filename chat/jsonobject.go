package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// object is a JSON object with a type. Its members are preserved unchanged.
type object map[string]json.RawMessage

func parseTyped(what string, data []byte) (o object, err error) {
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("chat: a %s must be a JSON object: %w", what, err)
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
	step(1)
	raw := o[name]
	if n := len(raw); n > 1 && raw[0] == '"' && raw[n-1] == '"' {
		if s := string(raw[1 : n-1]); needsNoEscape(s) {
			return s
		}
	}
	var s string
	if raw == nil || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// needsNoEscape reports whether a text between quotes is already JSON: most texts of chunks are.
func needsNoEscape(s string) bool {
	ascii := true
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s) && !strings.ContainsAny(s, "\u2028\u2029") // which encode escapes
}

// Member returns a member as JSON, or nil if there is none. The caller must not change it.
func (o object) Member(name string) json.RawMessage {
	step(1)
	return o[name]
}

func (o object) is(name string) bool { return string(o[name]) == "true" }

// set sets a member: to a string, a boolean, or JSON; nil removes it.
func (o object) set(name string, v any) {
	step(1)
	switch v := v.(type) {
	case json.RawMessage:
		if v == nil {
			delete(o, name)
		} else {
			o[name] = v
		}
		return
	case string:
		if needsNoEscape(v) {
			o[name] = append(append(append(make(json.RawMessage, 0, len(v)+2), '"'), v...), '"')
			return
		}
	}
	raw, err := encode(v)
	if err != nil {
		panic(err) // a string or a boolean always encodes
	}
	o[name] = raw
}

// copyMembers copies the named members that another object has.
func (o object) copyMembers(from object, names ...string) {
	for _, n := range names {
		if raw, ok := from[n]; ok {
			o[n] = raw
		}
	}
}

// encode encodes without HTML escapes.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	step(1 + b.Len()/64)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}
