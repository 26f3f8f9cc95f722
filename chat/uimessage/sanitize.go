package uimessage

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// maxProviderText is how many UTF-16 units are kept of each string in the input and output of a provider's own tool:
// they are reproducible, and may be a whole page.
const maxProviderText = 500

// Sanitize returns the storable form of a message. It is idempotent, and does not modify its argument.
func Sanitize(m Message) Message {
	m = m.Clone()
	kept := m.Parts[:0]
	for _, p := range m.Parts {
		removeItemIDs(p, "providerMetadata")
		removeItemIDs(p, "callProviderMetadata")
		if IsCall(p) {
			sanitizeTool(p)
		}
		if p.Type() == "reasoning" && strings.TrimSpace(p.Text("text")) == "" && p.Member("providerMetadata") == nil {
			continue
		}
		kept = append(kept, p)
	}
	m.Parts = kept
	return m
}

// removeItemIDs removes OpenAI's ids of stored items, and its encrypted reasoning: OpenAI refuses them as duplicates
// when they are sent again.
func removeItemIDs(p Part, member string) {
	var meta map[string]json.RawMessage
	var openai map[string]json.RawMessage
	if raw := p.Member(member); raw == nil || json.Unmarshal(raw, &meta) != nil || meta == nil {
		return
	}
	if raw, ok := meta["openai"]; !ok || json.Unmarshal(raw, &openai) != nil || openai == nil {
		return
	}
	delete(openai, "itemId")
	delete(openai, "reasoningEncryptedContent")
	if len(openai) == 0 {
		delete(meta, "openai")
	} else {
		meta["openai"] = rawjson.MustEncode(openai)
	}
	if len(meta) == 0 {
		p.set(member, json.RawMessage(nil))
	} else {
		p.set(member, rawjson.MustEncode(meta))
	}
}

// sanitizeTool makes the input of a call an object, as models require, and shortens the input and output of a
// provider's own tool, unless the provider needs them to continue.
func sanitizeTool(p Part) {
	if state := p.Text("state"); p.Member("input") != nil || state != InputStreaming && state != OutputError {
		p.set("input", asObject(p.Member("input")))
	}
	if name := ToolName(p); !p.is("providerExecuted") || name == "web_search" || name == "web_fetch" {
		return
	}
	for _, member := range []string{"input", "output"} {
		var v any
		if raw := p.Member(member); raw == nil || rawjson.Decode(raw, &v) != nil {
			continue
		}
		p.set(member, rawjson.MustEncode(shorten(v)))
	}
}

// asObject returns a tool's input as an object: the object that a string contains, or else {"value": input}.
func asObject(raw json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(rawjson.OrNull(raw), &o) == nil {
		if o == nil {
			return json.RawMessage("{}")
		}
		return raw
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if strings.TrimSpace(s) == "" {
			return json.RawMessage("{}")
		}
		if rawjson.Nesting([]byte(s)) <= MaxNesting && json.Unmarshal([]byte(s), &o) == nil && o != nil {
			return json.RawMessage(s)
		}
	}
	return rawjson.MustEncode(map[string]json.RawMessage{"value": raw})
}

// shorten shortens the strings in a value.
func shorten(v any) any {
	switch v := v.(type) {
	case string:
		return truncate(v, maxProviderText)
	case []any:
		for i := range v {
			v[i] = shorten(v[i])
		}
	case map[string]any:
		for k := range v {
			if !strings.HasPrefix(k, "encrypted") {
				v[k] = shorten(v[k])
			}
		}
	}
	return v
}

// truncationMark begins the mark at the end of a shortened string.
const truncationMark = "... [truncated "

// truncate returns the beginning of s, with a mark that counts the UTF-16 units cut off. It does not cut s twice.
func truncate(s string, most int) string {
	n := units(s)
	if n <= most || strings.Contains(s[max(0, len(s)-len(truncationMark)-len("2147483647 chars]")):], truncationMark) {
		return s
	}
	head := firstUnits(s, most)
	return fmt.Sprintf("%s%s%d chars]", head, truncationMark, n-units(head))
}

// units returns the length of s in UTF-16 units, as in JavaScript.
func units(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// firstUnits returns the longest prefix of s with at most n units.
func firstUnits(s string, n int) string {
	for i, r := range s {
		if n -= utf16.RuneLen(r); n < 0 {
			return s[:i]
		}
	}
	return s
}
