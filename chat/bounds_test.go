package chat

import (
	"errors"
	"strings"
	"testing"

	"github.com/dohost/dohost"
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

func TestFileTooLargeForARow(t *testing.T) {
	for size, fits := range map[int]bool{maxMessage - 1000: true, maxMessage: false} {
		p, err := NewPart("file", map[string]any{"mediaType": "image/png", "url": "data:" + strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := fitRow(Message{ID: "a", Role: RoleUser, Parts: []Part{p}})
		large, ok := errors.AsType[*dohost.LimitError](err)
		if ok == fits || fits != (len(raw) > size) || ok && (large.Size <= size || large.Limit != maxMessage) {
			t.Errorf("%d bytes: %d bytes of JSON, %v", size, len(raw), err)
		}
	}
}
