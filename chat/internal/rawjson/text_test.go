package rawjson

import (
	"encoding/json"
	"testing"
)

// TestTextsMatchTheEncoder encodes and reads texts. Some need escapes and some are not UTF-8.
func TestTextsMatchTheEncoder(t *testing.T) {
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
		if got := Text(json.RawMessage(raw)); got != "" {
			t.Errorf("%s is the text %q", raw, got)
		}
	}
}

func testText(t *testing.T, s string) {
	want, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := json.Unmarshal(want, &text); err != nil {
		t.Fatal(err)
	}
	if got := String(s); string(got) != string(want) {
		t.Errorf("%q is encoded to %s, want %s", s, got, want)
	}
	asHTML, err := json.Marshal(s) // with more escapes than necessary
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []json.RawMessage{want, asHTML} {
		if got := Text(raw); got != text {
			t.Errorf("the text of %s is %q, want %q", raw, got, text)
		}
	}
}
