package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// TestSubscriptionsOfStreamAreBounded creates as many subscriptions of one stream as it may have, by patterns and by name. Those of other
// streams are no part of them, and a restart changes nothing.
func TestSubscriptionsOfStreamAreBounded(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		const refused = "429 TOO_MANY_SUBSCRIPTIONS"
		do := func(status, method, path, body string) {
			t.Helper()
			want[any](t, Server(h.Host(), nil), status, method, path, body)
		}
		create := func(status, id, streams string) {
			t.Helper()
			do(status, "PUT", to(id, ""), `{"type":"pull-wake","wake_stream":"w",`+streams+`}`)
		}
		for i := range maxPerStream {
			create("201", fmt.Sprint("pattern", i), `"pattern":"a/*"`)
			create("201", fmt.Sprint("name", i), `"streams":["a/b"]`)
		}
		for range 2 {
			for _, pattern := range []string{"a/*", "**", "a/b", "*/c", "**/a/*/**"} {
				create(refused, "more", `"pattern":"`+pattern+`"`)
			}
			create(refused, "more", `"streams":["x","a/b"]`)
			if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		create("200", "pattern0", `"pattern":"a/*"`)
		create("200", "name0", `"streams":["a/b"]`)
		do("204", "POST", to("name0", "/streams"), `{"streams":["a/b","a/c"]}`)
		create("201", "others", `"pattern":"a","streams":["a/c"]`)
		do(refused, "POST", to("others", "/streams"), `{"streams":["a/b"]}`)
		do("204", "DELETE", to("name1", "/streams/a%2Fb"), "")
		do("204", "POST", to("others", "/streams"), `{"streams":["a/b"]}`)
		do(refused, "POST", to("name1", "/streams"), `{"streams":["a/b"]}`)
		do("204", "DELETE", to("name2", ""), "")
		do("204", "POST", to("name1", "/streams"), `{"streams":["a/b"]}`)
		do("204", "DELETE", to("pattern0", ""), "")
		create("201", "more", `"pattern":"*/*"`)
		create(refused, "pattern0", `"pattern":"a/*"`)
		create("400 INVALID_REQUEST", "long", `"pattern":"`+strings.Repeat("a/", maxSegments)+`a"`)
	})
}

// TestOverlap compares patterns with paths that they may have in common: a path is a pattern that matches itself alone.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "a/b", false}, {"*", "a", true}, {"*", "*", true}, {"a/*", "*/b", true},
		{"a/*", "*/b/c", false}, {"**", "a/*/c", true}, {"**", "**", true}, {"a/**", "**/b", true}, {"a/**", "b/**", false},
		{"a/**", "a", true}, {"**/x/**", "a/*", true}, {"**/x/**", "a/b", false}, {"a/**/b", "a/c/**/d/b", true}, {"a/**/b", "a/**/c", false},
		{"**/a", "a/**/b", false}, {"*/**", "a/b", true}, {"*/*/**", "a", false}, {"**/**", "a", true},
	} {
		a, b := strings.Split(c.a, "/"), strings.Split(c.b, "/")
		if overlap(a, b) != c.want || overlap(b, a) != c.want {
			t.Errorf("%s and %s: %t and %t, want %t", c.a, c.b, overlap(a, b), overlap(b, a), c.want)
		}
		if !strings.Contains(c.b, "*") && globMatch(a, b) != c.want {
			t.Errorf("%s matches %s: %t", c.a, c.b, !c.want)
		}
	}
}
