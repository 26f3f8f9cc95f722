package uimessage

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// failer is a test, or the test of a rapid property.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

func chunksOf(t failer, lines string) (cs []Chunk) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var c Chunk
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		cs = append(cs, c)
	}
	return cs
}

// parts returns, as JSON, the parts that chunks build in an empty message.
func parts(t failer, cs []Chunk) string {
	t.Helper()
	a := newAccumulator(Message{ID: "m", Role: RoleAssistant})
	for _, c := range cs {
		a.add(c)
	}
	m := a.message()
	raw, err := rawjson.Encode(m.Parts)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func sameJSON(t failer, what, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %v: %s", what, err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v: %s", what, err, want)
	}
	gs, err := json.Marshal(g)
	ws, err2 := json.Marshal(w)
	if err != nil || err2 != nil || string(gs) != string(ws) {
		t.Errorf("%s:\n%s, want\n%s", what, gs, ws)
	}
}

// TestChunksBuildParts builds parts from a stream of each kind, complete and interrupted.
func TestChunksBuildParts(t *testing.T) {
	for name, c := range map[string]struct{ chunks, want string }{
		"text": {`
			{"type":"start","messageId":"x"}
			{"type":"start-step"}
			{"type":"text-start","id":"1"}
			{"type":"text-delta","id":"1","delta":"a < b"}
			{"type":"text-delta","id":"1","delta":" & c","providerMetadata":{"p":1}}
			{"type":"text-end","id":"1"}
			{"type":"finish-step"}
			{"type":"finish"}`,
			`[{"type":"step-start"},{"type":"text","text":"a < b & c","state":"done","providerMetadata":{"p":1}}]`},
		"text that was cut off": {`
			{"type":"text-start","id":"1"}
			{"type":"text-delta","id":"1","delta":"half a wo"}`,
			`[{"type":"text","text":"half a wo","state":"streaming"}]`},
		"texts and a reasoning at once": {`
			{"type":"reasoning-start","id":"1"}
			{"type":"text-start","id":"1"}
			{"type":"text-start","id":"2"}
			{"type":"text-delta","id":"2","delta":"two"}
			{"type":"reasoning-delta","id":"1","delta":"why"}
			{"type":"text-delta","id":"1","delta":"one"}
			{"type":"reasoning-end","id":"1"}
			{"type":"text-delta","id":"2","delta":"!"}`,
			`[{"type":"reasoning","text":"why","state":"done"},{"type":"text","text":"one","state":"streaming"},
				{"type":"text","text":"two!","state":"streaming"}]`},
		"a step ends what has no end": {`
			{"type":"text-delta","id":"1","delta":"a"}
			{"type":"finish-step"}
			{"type":"text-delta","id":"1","delta":"b"}`,
			`[{"type":"text","text":"a","state":"done"},{"type":"text","text":"b","state":"streaming"}]`},
		"what is out of place": {`
			{"type":"text-end","id":"1"}
			{"type":"text-start","id":"1"}
			{"type":"text-delta","id":"1","delta":"a"}
			{"type":"text-start","id":"1"}
			{"type":"text-more","id":"1","delta":"b"}
			{"type":"tool-output-available","toolCallId":"never","output":1}
			{"type":"tool-input-start","toolName":"f"}
			{"type":"egg"}`,
			`[{"type":"text","text":"a","state":"streaming"}]`},
		"a tool": {`
			{"type":"tool-input-start","toolCallId":"1","toolName":"f","title":"F"}
			{"type":"tool-input-delta","toolCallId":"1","inputTextDelta":"{"}
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{"a":1},"providerMetadata":{"p":1}}
			{"type":"tool-output-available","toolCallId":"1","output":[2]}`,
			`[{"type":"tool-f","toolCallId":"1","title":"F","state":"output-available","input":{"a":1},"output":[2],
				"callProviderMetadata":{"p":1}}]`},
		"a tool whose call was cut off": {`
			{"type":"tool-input-start","toolCallId":"1","toolName":"f"}
			{"type":"tool-input-delta","toolCallId":"1","inputTextDelta":"{"}`,
			`[{"type":"tool-f","toolCallId":"1","state":"input-streaming"}]`},
		"a dynamic tool that fails": {`
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","dynamic":true,"input":{"a":1}}
			{"type":"tool-output-error","toolCallId":"1","errorText":"no"}`,
			`[{"type":"dynamic-tool","toolName":"f","toolCallId":"1","state":"output-error","input":{"a":1},"errorText":"no"}]`},
		"an input that is none": {`
			{"type":"tool-input-start","toolCallId":"1","toolName":"f"}
			{"type":"tool-input-error","toolCallId":"1","toolName":"f","input":"{","errorText":"no JSON"}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-error","rawInput":"{","errorText":"no JSON"}]`},
		"approval, denied": {`
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{}}
			{"type":"tool-approval-request","toolCallId":"1","approvalId":"q"}
			{"type":"tool-output-denied","toolCallId":"1"}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-denied","input":{},"approval":{"id":"q"}}]`},
		"outputs that are preliminary": {`
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{}}
			{"type":"tool-output-available","toolCallId":"1","output":1,"preliminary":true}
			{"type":"tool-output-available","toolCallId":"1","output":2,"preliminary":true}
			{"type":"tool-output-available","toolCallId":"1","output":3}
			{"type":"tool-output-available","toolCallId":"1","output":4,"preliminary":true}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":3}]`},
		"a provider that repeats itself": {`
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{"a":1}}
			{"type":"tool-input-start","toolCallId":"1","toolName":"f"}
			{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{"a":2}}
			{"type":"tool-output-available","toolCallId":"1","output":1}
			{"type":"tool-input-start","toolCallId":"1","toolName":"f"}
			{"type":"tool-output-error","toolCallId":"1","errorText":"no"}
			{"type":"tool-output-available","toolCallId":"1","output":2}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-available","input":{"a":1},"output":1}]`},
		"files, sources and data": {`
			{"type":"file","mediaType":"image/png","url":"data:,","secret":1}
			{"type":"source-url","sourceId":"s","url":"https://example.com"}
			{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"t"}
			{"type":"data-step","data":1}
			{"type":"data-step","id":"d","data":2}
			{"type":"data-step","id":"d","data":{"n":3}}
			{"type":"data-other","id":"d","data":4}
			{"type":"data-step","data":5,"transient":true}`,
			`[{"type":"file","mediaType":"image/png","url":"data:,"},
				{"type":"source-url","sourceId":"s","url":"https://example.com"},
				{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"t"},
				{"type":"data-step","data":1},{"type":"data-step","id":"d","data":{"n":3}},{"type":"data-other","id":"d","data":4}]`},
	} {
		t.Run(name, func(t *testing.T) { sameJSON(t, "parts", parts(t, chunksOf(t, c.chunks)), c.want) })
	}
}

// TestChunksContinueAMessage adds chunks to a copy of a message, and checks its parts and metadata.
func TestChunksContinueAMessage(t *testing.T) {
	var m Message
	if err := json.Unmarshal([]byte(`{"id":"a","role":"assistant","parts":[{"type":"text","text":"x","color":"red"},
		{"type":"tool-f","toolCallId":"1","state":"input-available","input":{}}],
		"metadata":{"a":{"b":1}},"createdAt":"then"}`), &m); err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	a := newAccumulator(m)
	for _, c := range chunksOf(t, `
		{"type":"start","messageId":"b","messageMetadata":{"a":{"c":2}}}
		{"type":"tool-output-available","toolCallId":"1","output":1}
		{"type":"message-metadata","messageMetadata":{"d":[3]}}
		{"type":"finish","finishReason":"stop","messageMetadata":{"d":[4]}}`) {
		if !a.add(c) {
			t.Errorf("%s changes nothing", c.Type())
		}
	}
	got, err := json.Marshal(a.message())
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "the message", string(got), `{"id":"b","role":"assistant","parts":[{"type":"text","text":"x","color":"red"},
		{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":1}],
		"metadata":{"a":{"b":1,"c":2},"d":[4],"finishReason":"stop"},"createdAt":"then"}`)
	after, err := json.Marshal(m)
	if err != nil || string(after) != string(before) {
		t.Errorf("the message that it began with is %s, was %s", after, before)
	}
}

// TestStreamPrefixIsAPrefixOfItsText reads a message between chunks. Reading must not change the message, and its
// texts must only grow.
func TestStreamPrefixIsAPrefixOfItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAccumulator(Message{ID: "m", Role: RoleAssistant})
		var cs []Chunk
		ranks, text := map[string]int{}, ""
		for range rapid.IntRange(1, 40).Draw(t, "chunks") {
			c := chunksOf(t, rapid.SampledFrom([]string{
				`{"type":"text-start","id":"1"}`, `{"type":"text-delta","id":"1","delta":"ab"}`, `{"type":"text-end","id":"1"}`,
				`{"type":"tool-input-start","toolCallId":"1","toolName":"f"}`,
				`{"type":"tool-input-available","toolCallId":"1","toolName":"f","input":{}}`,
				`{"type":"tool-approval-request","toolCallId":"1","approvalId":"q"}`,
				`{"type":"tool-output-available","toolCallId":"1","output":1}`,
				`{"type":"tool-output-available","toolCallId":"1","output":1,"preliminary":true}`,
				`{"type":"tool-output-error","toolCallId":"1","errorText":"no"}`, `{"type":"tool-output-denied","toolCallId":"1"}`,
				`{"type":"finish-step"}`, `{"type":"start-step"}`,
			}).Draw(t, "chunk"))[0]
			cs = append(cs, c)
			a.add(c)
			if !rapid.Bool().Draw(t, "look") {
				continue
			}
			m := a.message()
			if now := m.PlainText(); !strings.HasPrefix(now, text) {
				t.Fatalf("the text was %q, is %q", text, now)
			} else {
				text = now
			}
			for _, p := range m.Parts {
				if !IsCall(p) {
					continue
				}
				id := p.Text("toolCallId")
				if toolRank(p) < ranks[id] {
					t.Fatalf("the call was at %d, is at %d", ranks[id], toolRank(p))
				}
				ranks[id] = toolRank(p)
				p.set("state", "changed by who looks")
			}
		}
		m := a.message()
		raw, err := rawjson.Encode(m.Parts)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "looked at, and not", string(raw), parts(t, cs))
	})
}

// TestMessageStoredWithOutOfBoundsIDIsReadable reads a stored message with an id that exceeds the present
// bounds.
func TestMessageStoredWithOutOfBoundsIDIsReadable(t *testing.T) {
	for _, id := range []string{"a\x1b]0;b", strings.Repeat("a", MaxID+1)} {
		m := Message{ID: id, Role: RoleUser, Parts: []Part{MakePart("text", "text", "hi")}}
		raw, err := rawjson.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		row := Stored{ID: id, Role: RoleUser, JSON: raw}
		if got, err := row.Message(); err != nil || got.ID != id || got.PlainText() != "hi" {
			t.Errorf("%.20q: %+v, %v", id, got, err)
		}
	}
}

func TestMessageUnmarshalErrors(t *testing.T) {
	for text, want := range map[string]string{
		`7`:                                     "a message must be a JSON object",
		`{"role":"user","parts":[]}`:            "a message has no id",
		`{"id":7,"role":"user","parts":[]}`:     "id of a message",
		`{"id":"a","role":"egg","parts":[]}`:    `message "a": role "egg": want system, user or assistant`,
		`{"id":"a","role":"user"}`:              `message "a" has no parts`,
		`{"id":"a","role":"user","parts":7}`:    "parts of a message",
		`{"id":"a","role":"user","parts":[7]}`:  "a part must be a JSON object",
		`{"id":"a","role":"user","parts":[{}]}`: "a part without a type",
	} {
		var m Message
		if err := json.Unmarshal([]byte(text), &m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
