// Package transcript normalizes the frames of a conversation, so that recorded frames of
// real clients can be compared with the frames of tests.
package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var (
	// named matches a member with an id, in a frame or in JSON text inside a frame. An id
	// of digits only is a model's name for one of its texts.
	named = regexp.MustCompile(`("(?:id|probeId|messageId|toolCallId|approvalId|of)\\*":\\*")([^"\\]+)`)
	count = regexp.MustCompile(`(?:\d+\.\d+ )+`)
	ends  = regexp.MustCompile(`^\((cut|close.*)\)`)
)

// Frame sorts the members of a frame's objects, also in JSON text inside the frame: a client that has received its own
// message from the server sends it with other positions of the same members. It replaces the ids by numbers, in order
// of appearance, and a count of any length by "1.0 1.1 ". Text that is no JSON keeps its members in their order.
func Frame(text string) string {
	known := map[string]string{}
	text = named.ReplaceAllStringFunc(sorted(text), func(member string) string {
		m := named.FindStringSubmatch(member)
		if known[m[2]] == "" {
			known[m[2]] = fmt.Sprintf("id-%d", len(known)+1)
		}
		return m[1] + known[m[2]]
	})
	return count.ReplaceAllString(text, "1.0 1.1 ")
}

// sorted returns JSON with the members of each object in the order of their names.
func sorted(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return text
	}
	return compact(inside(v))
}

// inside sorts the JSON objects and lists in the strings of v.
func inside(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			v[name] = inside(m)
		}
	case []any:
		for i, m := range v {
			v[i] = inside(m)
		}
	case string:
		if strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[") {
			return sorted(v)
		}
	}
	return v
}

// compact encodes v, whose maps json writes in the order of their keys.
func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // cannot happen: v has been decoded from JSON
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Sent reports whether text is a client's frame, and not the end of its connection.
func Sent(text string) bool { return !ends.MatchString(text) }
