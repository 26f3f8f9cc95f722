package chat

import (
	"encoding/json"
	"testing"
)

// TestObjectTextsMatchTheEncoder sets and reads texts. Some need escapes and some are not UTF-8.
func TestObjectTextsMatchTheEncoder(t *testing.T) {
	pieces := []string{
		"", "a word", `"`, `\`, "/", "\n", "\x00", "\x1f", " ", "~", "\x7f", "<a&b>", `\u00e9`, "é", "\U0001f600",
		"\u2027", "\u2028", "\u2029", "\ufffd", "\xff", "\xed\xa0\x80", "\xe2\x80",
	}
	for _, first := range pieces {
		for _, second := range pieces {
			testText(t, first+second)
		}
	}
	for _, raw := range []string{``, `"`, `null`, `1`, `true`, `{"a":"b"}`, `["a"]`, `"a" "b"`, ` "a`, `"ab`} {
		if got := (object{"a": json.RawMessage(raw)}).Text("a"); got != "" {
			t.Errorf("%s is the text %q", raw, got)
		}
	}
}

func testText(t *testing.T, s string) {
	want, err := encode(s)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := json.Unmarshal(want, &text); err != nil {
		t.Fatal(err)
	}
	o := object{}
	if o.set("a", s); string(o["a"]) != string(want) {
		t.Errorf("%q is set to %s, want %s", s, o["a"], want)
	}
	asHTML, err := json.Marshal(s) // with more escapes than necessary
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []json.RawMessage{want, asHTML} {
		if got := (object{"a": raw}).Text("a"); got != text {
			t.Errorf("the text of %s is %q, want %q", raw, got, text)
		}
	}
}
