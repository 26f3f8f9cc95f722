package uimessage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

const (
	// maxOutput is the size, in UTF-16 units, from where on a tool's output or a text is shortened in a message that is
	// too large.
	maxOutput = 1000
	// maxDepth is the nesting depth of a shortened output.
	maxDepth = 8
	// markUnits is the maximum size of a truncation mark, with quotes.
	markUnits = len(truncationMark) + len("2000000 chars]") + 2
	// keptUnits is the number of UTF-16 units that remain of a shortened text.
	keptUnits = 500
)

// Shrink makes the JSON of a message fit into most bytes, if possible. In an assistant's message it shortens tool
// outputs first, and lists them in the metadata as compactedToolOutputs. Then, in any message, it shortens texts, the
// oldest first, and lists them as compactedTextParts. It returns the message's JSON, which may still be larger than most,
// and does not modify its argument.
//
// Errors: one for a message that is nested too deeply to be encoded.
func Shrink(m Message, most int) (json.RawMessage, error) {
	raw, err := rawjson.Encode(m)
	if err != nil || len(raw) <= most {
		return raw, err
	}
	m = m.Clone()
	if m.Role == RoleAssistant {
		shrinkOutputs(&m)
		if raw, err = rawjson.Encode(m); err != nil {
			return nil, err
		}
	}
	if len(raw) > most {
		shrinkTexts(&m, len(raw), most)
		return rawjson.Encode(m)
	}
	return raw, nil
}

func shrinkOutputs(m *Message) {
	var shrunk []string
	for _, p := range m.Parts {
		raw := p.Member("output")
		if !IsCall(p) || p.Text("state") != OutputAvailable || units(string(raw)) <= maxOutput {
			continue
		}
		var v any
		if rawjson.Decode(raw, &v) == nil {
			p.set("output", rawjson.MustEncode(shrink(v, maxOutput, maxDepth)))
			shrunk = append(shrunk, p.Text("toolCallId"))
		}
	}
	m.setMetadata("compactedToolOutputs", shrunk)
}

// shrinkTexts shortens texts of a message of size bytes until the message has at most most.
func shrinkTexts(m *Message, size, most int) {
	var shrunk []int
	for i := 0; i < len(m.Parts) && size > most; i++ {
		p := m.Parts[i]
		s := p.Text("text")
		if p.Type() != "text" || units(s) <= maxOutput {
			continue
		}
		size -= len(p.Member("text"))
		head := firstUnits(s, keptUnits)
		p.set("text", fmt.Sprintf("[Text of %d chars, shortened to be stored.] %s...", units(s), head))
		size += len(p.Member("text")) + 8 // its entry in the note
		shrunk = append(shrunk, i)
	}
	m.setMetadata("compactedTextParts", shrunk)
}

// setMetadata adds a member to the metadata, unless it is an empty list.
func (m *Message) setMetadata(name string, list any) {
	raw := rawjson.MustEncode(list)
	if string(raw) == "null" {
		return
	}
	m.Metadata = rawjson.Merge(m.Metadata, rawjson.MustEncode(map[string]json.RawMessage{name: raw}))
}

// shrink returns a part of a value that has about most UTF-16 units as JSON. It marks omissions at the end of strings
// and arrays, and in the members __truncated and __truncatedChars of objects.
func shrink(v any, most, depth int) any {
	whole := rawjson.MustEncode(v)
	n := units(string(whole))
	if n <= most {
		return v
	}
	switch v := v.(type) {
	case string:
		return truncate(v, max(0, most-markUnits))
	case []any:
		if depth == 0 {
			break
		}
		kept := []any{}
		for i, e := range v {
			e = shrink(e, most, depth-1)
			size := units(string(rawjson.MustEncode(e))) + 1
			if most -= size; most < 0 {
				return append(kept, fmt.Sprintf("%s%d items]", truncationMark, len(v)-i))
			}
			kept = append(kept, e)
		}
		return kept
	case map[string]any:
		if depth == 0 {
			break
		}
		kept := map[string]any{}
		left := most
		for _, k := range sortedKeys(v) {
			e := shrink(v[k], max(left, 0), depth-1)
			size := units(string(rawjson.MustEncode(e))) + units(k) + 4
			if size > left {
				continue
			}
			left -= size
			kept[k] = e
		}
		missing := n - units(string(rawjson.MustEncode(kept)))
		kept["__truncated"], kept["__truncatedChars"] = true, missing
		return kept
	}
	return fmt.Sprintf("%s%d chars]", truncationMark, n)
}

// sortedKeys returns the names of members, the smallest members first, so that the most members are kept.
func sortedKeys(o map[string]any) []string {
	size := map[string]int{}
	var keys []string
	for k, v := range o {
		size[k] = len(rawjson.MustEncode(v))
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := size[a] - size[b]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return keys
}
