package agent

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// total is a type that decodes itself.
type total struct{ text string }

func (s *total) UnmarshalJSON(b []byte) error { s.text = string(b); return nil }

type order struct {
	Item  string
	_     int // no argument goes to it
	Count *int
	Tags  []string
}

func TestCallArguments(t *testing.T) {
	for _, tt := range []struct{ args, order, ints, pair, number, none, own, raw, at string }{
		{`[]`, `{ <nil> []}`, `[]`, `[0 0]`, `0`, `{}`, `{}`, ``, `0001-01-01`},
		{`["tea"]`, `{tea <nil> []}`, `error`, `error`, `error`, `{}`, `{"tea"}`, `"tea"`, `error`},
		{`["tea",2]`, `{tea 2 []}`, `error`, `error`, `error`, `{}`, `{["tea",2]}`, `["tea",2]`, `error`},
		{`["tea",2,["hot"],true]`, `{tea 2 [hot]}`, `error`, `error`, `error`, `{}`, `{["tea",2,["hot"],true]}`, `["tea",2,["hot"],true]`, `error`},
		{`[{"Item":"tea"}]`, `{tea <nil> []}`, `error`, `error`, `error`, `{}`, `{{"Item":"tea"}}`, `{"Item":"tea"}`, `error`},
		{`[{"Item":"tea"},1]`, `error`, `error`, `error`, `error`, `{}`, `{[{"Item":"tea"},1]}`, `[{"Item":"tea"},1]`, `error`},
		{`[null]`, `{ <nil> []}`, `[]`, `[0 0]`, `0`, `{}`, `{null}`, `null`, `0001-01-01`},
		{`[1]`, `error`, `[1]`, `[1 0]`, `1`, `{}`, `{1}`, `1`, `error`},
		{`[1,2,3]`, `error`, `[1 2 3]`, `[1 2]`, `1`, `{}`, `{[1,2,3]}`, `[1,2,3]`, `error`},
		{`[[1,2]]`, `error`, `[1 2]`, `[1 2]`, `error`, `{}`, `{[1,2]}`, `[1,2]`, `error`},
		{`["2026-01-02T00:00:00Z"]`, `{2026-01-02T00:00:00Z <nil> []}`, `error`, `error`, `error`, `{}`, `{"2026-01-02T00:00:00Z"}`, `"2026-01-02T00:00:00Z"`, `2026-01-02`},
	} {
		args := json.RawMessage(tt.args)
		wantArguments(t, tt.args, args, tt.order, func(o order) string {
			if o.Count != nil {
				return fmt.Sprintf("{%s %d %v}", o.Item, *o.Count, o.Tags)
			}
			return fmt.Sprintf("{%s <nil> %v}", o.Item, o.Tags)
		})
		wantArguments(t, tt.args, args, tt.ints, func(v []int) string { return fmt.Sprint(v) })
		wantArguments(t, tt.args, args, tt.pair, func(v [2]int) string { return fmt.Sprint(v) })
		wantArguments(t, tt.args, args, tt.number, func(v int) string { return fmt.Sprint(v) })
		wantArguments(t, tt.args, args, tt.none, func(v struct{}) string { return fmt.Sprint(v) })
		wantArguments(t, tt.args, args, tt.own, func(v total) string { return "{" + v.text + "}" })
		wantArguments(t, tt.args, args, tt.raw, func(v json.RawMessage) string { return string(v) })
		wantArguments(t, tt.args, args, tt.at, func(v time.Time) string { return v.Format(time.DateOnly) })
	}
	var pointer *order
	if in, err := arguments[*order](json.RawMessage(`["tea"]`)); err != nil || in.Item != "tea" {
		t.Errorf("a pointer: %v, %v", in, err)
	}
	if in, err := arguments[*order](json.RawMessage(`[ null ]`)); err != nil || in != pointer {
		t.Errorf("a pointer: %v, %v", in, err)
	}
	if in, err := arguments[[]byte](json.RawMessage(`["dGVh",null]`)); err != nil || string(in) != "tea" {
		t.Errorf("bytes: %s, %v", in, err)
	}
}

func wantArguments[In any](t *testing.T, call string, args json.RawMessage, want string, text func(In) string) {
	t.Helper()
	in, err := arguments[In](args)
	if got := text(in); err == nil && got != want || err != nil && (want != "error" || strings.Contains(err.Error(), "panic")) {
		t.Errorf("%s into %T: %s, %v; want %s", call, in, got, err, want)
	}
}

// TestElementsMatchTheDecoder compares the elements of arrays with those that encoding/json decodes.
func TestElementsMatchTheDecoder(t *testing.T) {
	for _, array := range []string{
		`[]`, `[ ]`, `[null]`, "[\n1 ,\t2\r]", `["a,b","]","\"","\\",",\\\""]`, `[[1,[2]],{"a,]":[{}]}, "x" ]`, `[{},[],""]`,
	} {
		var want, got []json.RawMessage
		if err := json.Unmarshal([]byte(array), &want); err != nil {
			t.Fatal(array, err)
		}
		for e := range elements(json.RawMessage(array)) {
			got = append(got, e)
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, want %q", array, got, want)
		}
	}
}

// TestArgumentsAllocateForTheirTypeOnly decodes two million arguments of a call.
func TestArgumentsAllocateForTheirTypeOnly(t *testing.T) {
	args := json.RawMessage(`[1` + strings.Repeat(`,1`, 2_000_000) + `]`)
	none := func() error { _, err := arguments[struct{}](args); return err }
	number := func() error { _, err := arguments[int](args); return err }
	pair := func() error { _, err := arguments[struct{ A, B int }](args); return err }
	pointer := func() error { _, err := arguments[*struct{ A, B int }](args); return err }
	for name, decode := range map[string]func() error{"none": none, "number": number, "pair": pair, "pointer": pointer} {
		if got := allocated(func() {
			if err := decode(); err != nil {
				t.Error(name, err)
			}
		}); got > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", name, got)
		}
	}
}

// allocated returns the bytes that f allocates, including those of other goroutines.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
