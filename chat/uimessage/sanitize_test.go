package uimessage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

func messageOf(t failer, text string) (m Message) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func jsonOf(t failer, v any) string {
	t.Helper()
	raw, err := rawjson.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestSanitize checks the stored form of parts, and that sanitizing it again changes nothing.
func TestSanitize(t *testing.T) {
	long := strings.Repeat("x", 501)
	cutLong := strings.Repeat("x", 500) + "... [truncated 1 chars]"
	for name, c := range map[string]struct{ part, want string }{
		"a text":                  {`{"type":"text","text":"a","own":1}`, `[{"type":"text","text":"a","own":1}]`},
		"a name that OpenAI gave": {`{"type":"text","text":"","providerMetadata":{"openai":{"itemId":"i","n":1},"p":2}}`, `[{"type":"text","text":"","providerMetadata":{"openai":{"n":1},"p":2}}]`},
		"nothing but names":       {`{"type":"text","text":"","providerMetadata":{"openai":{"itemId":"i","reasoningEncryptedContent":"c"}}}`, `[{"type":"text","text":""}]`},
		"an openai without names": {`{"type":"text","text":"","providerMetadata":{"openai":"o","p":2}}`, `[{"type":"text","text":"","providerMetadata":{"openai":"o","p":2}}]`},
		"of a call":               {`{"type":"tool-f","toolCallId":"1","state":"input-streaming","callProviderMetadata":{"openai":{"itemId":"i"}}}`, `[{"type":"tool-f","toolCallId":"1","state":"input-streaming"}]`},
		"an empty reasoning":      {`{"type":"reasoning","text":" \n","providerMetadata":{"openai":{"itemId":"i"}}}`, `[]`},
		"an empty one that a provider signed": {`{"type":"reasoning","text":"","providerMetadata":{"p":{"signature":"s"}}}`,
			`[{"type":"reasoning","text":"","providerMetadata":{"p":{"signature":"s"}}}]`},
		"no input":         {`{"type":"tool-f","toolCallId":"1","state":"input-available"}`, `[{"type":"tool-f","toolCallId":"1","state":"input-available","input":{}}]`},
		"a null":           {`{"type":"tool-f","toolCallId":"1","state":"output-error","input":null}`, `[{"type":"tool-f","toolCallId":"1","state":"output-error","input":{}}]`},
		"a raw one":        {`{"type":"tool-f","toolCallId":"1","state":"output-error","rawInput":"{"}`, `[{"type":"tool-f","toolCallId":"1","state":"output-error","rawInput":"{"}]`},
		"JSON in a string": {`{"type":"dynamic-tool","toolName":"f","toolCallId":"1","state":"input-available","input":"{\"a\":1}"}`, `[{"type":"dynamic-tool","toolName":"f","toolCallId":"1","state":"input-available","input":{"a":1}}]`},
		"a list":           {`{"type":"tool-f","toolCallId":"1","state":"input-available","input":[1]}`, `[{"type":"tool-f","toolCallId":"1","state":"input-available","input":{"value":[1]}}]`},
		"a long output of a tool of ours": {`{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":"` + long + `"}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":"` + long + `"}]`},
		"of a provider's": {`{"type":"tool-f","toolCallId":"1","state":"output-available","providerExecuted":true,"input":{"q":"` + long + `"},"output":[{"a":"` + long + `","encryptedB":"` + long + `","n":12345678901234567890}]}`,
			`[{"type":"tool-f","toolCallId":"1","state":"output-available","providerExecuted":true,"input":{"q":"` + cutLong + `"},"output":[{"a":"` + cutLong + `","encryptedB":"` + long + `","n":12345678901234567890}]}]`},
		"of a search": {`{"type":"tool-web_search","toolCallId":"1","state":"output-available","providerExecuted":true,"input":{},"output":"` + long + `"}`,
			`[{"type":"tool-web_search","toolCallId":"1","state":"output-available","providerExecuted":true,"input":{},"output":"` + long + `"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			m := messageOf(t, `{"id":"a","role":"assistant","parts":[`+c.part+`]}`)
			before := jsonOf(t, m)
			once := Sanitize(m)
			sameJSON(t, "once", jsonOf(t, once.Parts), c.want)
			twice := Sanitize(once)
			sameJSON(t, "twice", jsonOf(t, twice.Parts), c.want)
			if after := jsonOf(t, m); after != before {
				t.Errorf("what it was given is %s, was %s", after, before)
			}
		})
	}
}

// TestCutCountsAsJavaScriptDoes cuts next to characters of two units.
func TestCutCountsAsJavaScriptDoes(t *testing.T) {
	for s, want := range map[string]string{
		"":         "",
		"abcd":     "abcd",
		"abcde":    "abcd... [truncated 1 chars]",
		"abc😀":     "abc... [truncated 2 chars]",
		"ab😀":      "ab😀",
		"ab😀c":     "ab😀... [truncated 1 chars]",
		"ééééé":    "éééé... [truncated 1 chars]",
		"日本語日本語日本": "日本語日... [truncated 4 chars]",
	} {
		got := truncate(s, 4)
		if got != want || truncate(got, 4) != got {
			t.Errorf("%q: %q and then %q, want %q", s, got, truncate(got, 4), want)
		}
	}
}

// TestShrinkMakesMessagesFit guards messages that are too large in each way.
func TestShrinkMakesMessagesFit(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("é<", testRow/3) // three bytes, two units
	output := func(id, json string) string {
		return fmt.Sprintf(`{"type":"tool-f","toolCallId":%q,"state":"output-available","input":{},"output":%s}`, id, json)
	}
	list := func(n int, e string) string { return "[" + strings.TrimSuffix(strings.Repeat(e+",", n), ",") + "]" }
	deep := strings.Repeat(`{"a":[`, 10) + `"` + big + `"` + strings.Repeat("]}", 10)
	for name, c := range map[string]struct {
		role, parts, meta string
		fits              bool
	}{
		"that fits":  {"assistant", output("1", `"`+strings.Repeat("x", 2000)+`"`), ``, true},
		"one output": {"assistant", output("1", `"`+big+`"`) + "," + output("2", `"short"`), `{"compactedToolOutputs":["1"]}`, true},
		"a list":     {"assistant", output("1", list(10_000, `{"n":"some text of a row"}`)), `{"compactedToolOutputs":["1"]}`, true},
		"deep":       {"assistant", output("1", deep), `{"compactedToolOutputs":["1"]}`, true},

		"deep, a list first": {"assistant", output("1", "["+deep+"]"), `{"compactedToolOutputs":["1"]}`, true},
		"an object":          {"assistant", output("1", `{"a":"`+big+`","b":1,"c":{"d":"`+big+`"}}`), `{"compactedToolOutputs":["1"]}`, true},
		"a text":             {"user", `{"type":"text","text":"first"},{"type":"text","text":"` + big + `"},{"type":"text","text":"` + strings.Repeat("x", 2000) + `"}`, `{"compactedTextParts":[1]}`, true},
		"both":               {"assistant", `{"type":"text","text":"` + big + `"},` + output("1", `"`+big+`"`), `{"compactedToolOutputs":["1"],"compactedTextParts":[0]}`, true},
		"a user's call":      {"user", output("1", `"`+big+`"`), ``, false},
		"a large file":       {"assistant", `{"type":"file","mediaType":"image/png","url":"data:` + big + `"}`, ``, false},
		"with a comment":     {"assistant", output("1", `"`+big+`"`), `{"compactedToolOutputs":["1"],"own":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			meta := ""
			if strings.Contains(c.meta, "own") {
				meta = `,"metadata":{"own":1}`
			}
			m := messageOf(t, `{"id":"a","role":"`+c.role+`","parts":[`+c.parts+`]`+meta+`}`)
			g, ok := fitted(t, m)
			if size := len(jsonOf(t, g)); ok != c.fits || ok != (size <= testRow) {
				t.Errorf("it fits: %v, want %v, with %d bytes", ok, c.fits, size)
			}
			if c.meta == "" {
				if g.Metadata != nil {
					t.Errorf("metadata %s", g.Metadata)
				}
			} else {
				sameJSON(t, "metadata", string(g.Metadata), c.meta)
			}
			if again, ok := fitted(t, g); ok != c.fits || jsonOf(t, again) != jsonOf(t, g) {
				t.Error("guarded again it is another")
			}
			for i, p := range g.Parts {
				if n := units(string(p.Member("output"))); strings.Contains(c.meta, "Outputs") && n > 2*maxOutput {
					t.Errorf("the output of part %d has %d units", i, n)
				}
				left := strings.ReplaceAll(string(p.Member("output")), truncationMark, "")
				if n := strings.Count(left, "{") + strings.Count(left, "["); strings.HasPrefix(name, "deep") && n != maxDepth {
					t.Errorf("the output of part %d goes %d deep, want %d", i, n, maxDepth)
				}
			}
		})
	}
}

// testRow is a bound of the JSON of messages, in bytes.
const testRow = 180_000

// fitted returns the stored form of a message, or the message if it does not fit.
func fitted(t failer, m Message) (_ Message, ok bool) {
	t.Helper()
	raw, err := Shrink(m, testRow)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > testRow {
		return m, false
	}
	return messageOf(t, string(raw)), true
}

// TestShrinkMarksOutputs checks the shortened forms of outputs.
func TestShrinkMarksOutputs(t *testing.T) {
	for in, want := range map[string]string{
		`"0123456789012345678901234567890123456789"`:                       `"012345678... [truncated 31 chars]"`,
		`[1,2,"0123456789012345678901234567890123456789","x"]`:             `[1,2,"01234... [truncated 35 chars]","x"]`,
		`["0123456789","0123456789","0123456789","0123456789"]`:            `["0123456789","0123456789","0123456789","... [truncated 1 items]"]`,
		`{"b":"0123456789012345678901234567890123456789","a":1,"c":[1,2]}`: `{"a":1,"c":[1,2],"__truncated":true,"__truncatedChars":47}`,
	} {
		var v any
		if err := rawjson.Decode([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, in, jsonOf(t, shrink(v, 40, maxDepth)), want)
	}
}

// A string that has less space than its truncation mark keeps nothing but the mark.
func TestShrinkWithoutSpaceForText(t *testing.T) {
	if got := shrink(strings.Repeat("x", 100), markUnits, maxDepth); got != "... [truncated 100 chars]" {
		t.Error(got)
	}
}

func TestCheckIDLimit(t *testing.T) {
	for n, ok := range map[int]bool{1: true, MaxID: true, MaxID + 1: false} {
		if err := CheckID("a message", strings.Repeat("x", n)); (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// Many texts are shortened in one pass. Each once needed a pass over the whole message.
func TestShrinkOfManyTexts(t *testing.T) {
	var parts strings.Builder
	for range 6000 {
		parts.WriteString(`,{"type":"text","text":"` + strings.Repeat("x", 1001) + `"}`)
	}
	g, ok := fitted(t, messageOf(t, `{"id":"a","role":"user","parts":[`+parts.String()[1:]+`]}`))
	if size := len(jsonOf(t, g)); ok != (size <= testRow) {
		t.Errorf("%t, %d bytes", ok, size)
	}
}

// JSON inside a string has its own nesting: a message with it can be stored, however deep it is.
func TestToolInputWithDeepTextIsStored(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 9_990) + "1" + strings.Repeat("}", 9_990)
	p := MakePart("tool-f", "toolCallId", "1", "state", InputAvailable, "input", deep)
	raw, err := Shrink(Sanitize(Message{ID: "m", Role: RoleAssistant, Parts: []Part{p}}), testRow)
	if err != nil || rawjson.Nesting(raw) > MaxNesting+10 {
		t.Errorf("%d deep, %v", rawjson.Nesting(raw), err)
	}
}

func TestShrinkRefusesDeepMessage(t *testing.T) {
	deep := json.RawMessage(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999))
	if _, err := Shrink(Message{ID: "m", Role: RoleUser, Parts: []Part{MakePart("data-x", "data", deep)}}, testRow); err == nil {
		t.Error("it is encoded")
	}
}
