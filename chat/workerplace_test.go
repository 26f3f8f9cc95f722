package chat

import (
	"testing"

	"github.com/dohost/dohost"
)

// TestKeysOfWorkerCalls compares the keys of calls that differ in one byte, which is not valid UTF-8. A digest has such bytes, and a scope
// may have them.
func TestKeysOfWorkerCalls(t *testing.T) {
	of := dohost.ID{Class: "clerk", Name: "a"}
	calls := map[string]string{} // by key
	add := func(call string, p workerPlace, id workerCallID) {
		key := p.key(of, &workerCall{tool: &Tool{ToolSpec: ToolSpec{Name: "t"}}, id: id})
		if other, ok := calls[key]; ok {
			t.Errorf("%s and %s have the key %s", call, other, key)
		}
		calls[key] = call
	}
	add("a call", workerPlace{}, workerCallID{})
	add("an equal call", workerPlace{}, workerCallID{number: 1})
	add("the digest FF", workerPlace{}, workerCallID{digest: "\xff"})
	add("the digest FE", workerPlace{}, workerCallID{digest: "\xfe"})
	add("the digest U+FFFD", workerPlace{}, workerCallID{digest: "\ufffd"})
	add("the scope FF", workerPlace{scope: []string{"\xff"}}, workerCallID{})
	add("the scope FE", workerPlace{scope: []string{"\xfe"}}, workerCallID{})
	add("two scopes", workerPlace{scope: []string{"a", "b"}}, workerCallID{})
	add("one scope", workerPlace{scope: []string{`a" "b`}}, workerCallID{})
}
