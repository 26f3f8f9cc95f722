package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckFrame(t *testing.T) {
	list := func(member string, n int, of string) string {
		return `{"` + member + `":[` + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + `]}`
	}
	parts := func(n int) string {
		return `{"messages":[` + list("parts", n, `{"type":"a"}`) + `]}`
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		frame, err string
	}{
		"small":                  {`{"type":"x","messages":[{"id":"a","parts":[{"type":"text","text":"[[,,\"{"}]}]}`, ""},
		"no JSON":                {`]]}}{"a`, ""},
		"nesting":                {deep(maxNesting), ""},
		"too deep":               {deep(maxNesting + 1), "nested too deeply"},
		"brackets in a text":     {`"` + deep(1000) + `\""`, ""},
		"messages":               {list("messages", maxFrameMessages, `{}`), ""},
		"too many messages":      {list("messages", maxFrameMessages+1, `{}`), "messages, the limit is 10000"},
		"messages by an escape":  {list(`\u006d\u0065\u0073\u0073\u0061\u0067\u0065\u0073`, maxFrameMessages+1, `1`), "messages, the limit is 10000"},
		"messages in two lists":  {`{"messages":[{}],` + list("messages", maxFrameMessages, `1`)[1:], "messages, the limit is 10000"},
		"parts":                  {parts(maxFrameParts), ""},
		"too many parts":         {parts(maxFrameParts + 1), "parts, the limit is 50000"},
		"too many members":       {`{"messages":[{"parts":[{` + strings.Repeat(`"a":1,`, maxFrameMembers) + `"b":1}]}]}`, "members, the limit is 400000"},
		"too many of a message":  {`{"messages":[{` + strings.Repeat(`"a":1,`, maxFrameMembers) + `"b":1}]}`, "members, the limit is 400000"},
		"too many of the frame":  {`{` + strings.Repeat(`"a":1,`, maxFrameMembers) + `"b":1}`, "members, the limit is 400000"},
		"too many tools":         {list("clientTools", maxFrameTools+1, `{}`), "tools, the limit is 1000"},
		"a large output":         {list("output", maxFrameMembers*2, `1`), ""},
		"a large one in a part":  {`{"messages":[{"parts":[` + list("output", maxFrameMembers*2, `1`) + `]}]}`, ""},
		"a text that never ends": {`{"messages":["`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFrame([]byte(c.frame))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}

// JSON inside a string has its own nesting: a message with it can be stored, however deep it is.
func TestToolInputWithDeepTextIsStored(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9_990) + "1" + strings.Repeat("}", 9_990)
	p := newPart("tool-f").with("toolCallId", "1").with("state", inputAvailable).with("input", deep)
	raw, err := fitRow(sanitize(Message{ID: "m", Role: RoleAssistant, Parts: []Part{p}}))
	if err != nil || nesting(raw) > maxMessageNesting {
		t.Errorf("%d deep, %v", nesting(raw), err)
	}
}

func TestGuardRefusesDeepMessage(t *testing.T) {
	deep := json.RawMessage(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999))
	if _, err := fitRow(Message{ID: "m", Role: RoleUser, Parts: []Part{newPart("data-x").with("data", deep)}}); err == nil {
		t.Error("it is encoded")
	}
}

// The nesting of each chunk of each reply is checked.
func TestNestingAllocatesNothing(t *testing.T) {
	chunk := []byte(`{"type":"text-delta","id":"0","delta":"a \"quoted\" word","m":{"a":[{"b":[1,2,{"c":"}]"}]}]}}`)
	if got := nesting(chunk); got != 6 {
		t.Errorf("the nesting is %d, want 6", got)
	}
	if n := testing.AllocsPerRun(100, func() { nesting(chunk) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
