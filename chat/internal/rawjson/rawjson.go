// Package rawjson reads and writes pieces of JSON without decoding all of it, for package chat and its message format.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Encode encodes without HTML escapes.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	Step(1 + b.Len()/64)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// MustEncode encodes a value that cannot fail to encode: a string, a number, or decoded JSON.
func MustEncode(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// Decode decodes JSON without rounding numbers.
func Decode(raw json.RawMessage, v any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	return d.Decode(v)
}

// OrNull returns raw, or null if raw is nil.
func OrNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// Merge merges two values: objects member by member; otherwise the result is b, or a if b is nil.
func Merge(a, b json.RawMessage) json.RawMessage {
	if b == nil {
		return a
	}
	var old, add map[string]json.RawMessage
	if json.Unmarshal(OrNull(a), &old) != nil || json.Unmarshal(b, &add) != nil || old == nil || add == nil {
		return b
	}
	for k, v := range add {
		old[k] = Merge(old[k], v)
	}
	merged, err := Encode(old)
	if err != nil {
		return b
	}
	return merged
}

// Text returns the text of a string, or "" if raw is not a string.
func Text(raw json.RawMessage) string {
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

// String encodes a string.
func String(s string) json.RawMessage {
	if needsNoEscape(s) {
		return append(append(append(make(json.RawMessage, 0, len(s)+2), '"'), s...), '"')
	}
	return MustEncode(s)
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
	return ascii || utf8.ValidString(s) && !strings.ContainsAny(s, "\u2028\u2029") // which Encode escapes
}
