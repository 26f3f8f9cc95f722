package transcript

import "testing"

func TestFrame(t *testing.T) {
	for _, c := range []struct{ name, a, b string }{
		{"ids", `{"type":"ack","id":"xY_1-z"}`, `{"type":"ack","id":"another"}`},
		{"ids of a body", `{"id":"a","body":"{\"messages\":[{\"id\":\"b\"}]}"}`, `{"id":"c","body":"{\"messages\":[{\"id\":\"d\"}]}"}`},
		{"the order of members", `{"id":"a","type":"t"}`, `{"type":"t","id":"a"}`},
		{"the order in a body", `{"body":"{\"m\":[{\"id\":\"b\",\"role\":\"<u>\"}]}"}`, `{"body":"{\"m\":[{\"role\":\"<u>\",\"id\":\"c\"}]}"}`},
		{"words", `{"text":"3.0 3.1 4.2 "}`, `{"text":"1.0 "}`},
	} {
		if a, b := Frame(c.a), Frame(c.b); a != b {
			t.Errorf("%s: %s, %s", c.name, a, b)
		}
	}
	for _, c := range []struct{ name, a, b string }{
		{"types", `{"type":"a"}`, `{"type":"b"}`},
		{"what is said", `{"text":"count 2"}`, `{"text":"count 3"}`},
		{"which id stands where", `{"id":"a","body":"{\"id\":\"a\"}"}`, `{"id":"a","body":"{\"id\":\"b\"}"}`},
		{"the order of a list", `{"l":[1,2]}`, `{"l":[2,1]}`},
		{"a large number", `{"n":9007199254740993}`, `{"n":9007199254740992}`},
		{"the order of members without an end", `{"id":"a","type":"t"`, `{"type":"t","id":"a"`},
	} {
		if Frame(c.a) == Frame(c.b) {
			t.Errorf("%s make no difference", c.name)
		}
	}
	for text, want := range map[string]bool{`{}`: true, "(cut)": false, "(close 1012) evicted": false} {
		if Sent(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}
