package uimessage

import (
	"encoding/json"
	"fmt"

	"github.com/dohost/dohost/chat/internal/rawjson"
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
	rawjson.Step(1)
	return rawjson.Text(o[name])
}

// Member returns a member as JSON, or nil if there is none. The caller must not change it.
func (o object) Member(name string) json.RawMessage {
	rawjson.Step(1)
	return o[name]
}

func (o object) is(name string) bool { return string(o[name]) == "true" }

// set sets a member: to a string, a boolean, or JSON; nil removes it.
func (o object) set(name string, v any) {
	rawjson.Step(1)
	switch v := v.(type) {
	case json.RawMessage:
		if v == nil {
			delete(o, name)
		} else {
			o[name] = v
		}
	case string:
		o[name] = rawjson.String(v)
	default:
		o[name] = rawjson.MustEncode(v)
	}
}

// setAll sets members: names and values in turn.
func (o object) setAll(members []any) {
	for i := 0; i+1 < len(members); i += 2 {
		o.set(members[i].(string), members[i+1])
	}
}

// copyMembers copies the named members that another object has.
func (o object) copyMembers(from object, names ...string) {
	for _, n := range names {
		if raw, ok := from[n]; ok {
			o[n] = raw
		}
	}
}
