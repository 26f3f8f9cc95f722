package rawjson

import "testing"

// The nesting of each chunk of each reply is checked.
func TestNestingAllocatesNothing(t *testing.T) {
	chunk := []byte(`{"type":"text-delta","id":"0","delta":"a \"quoted\" word","m":{"a":[{"b":[1,2,{"c":"}]"}]}]}}`)
	if got := Nesting(chunk); got != 6 {
		t.Errorf("the nesting is %d, want 6", got)
	}
	if n := testing.AllocsPerRun(100, func() { Nesting(chunk) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
