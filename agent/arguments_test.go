package agent

import (
	"encoding/json"
	"fmt"
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
		var args []json.RawMessage
		if err := json.Unmarshal([]byte(tt.args), &args); err != nil {
			t.Fatal(err)
		}
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
	if in, err := arguments[*order]([]json.RawMessage{json.RawMessage(`"tea"`)}); err != nil || in.Item != "tea" {
		t.Errorf("a pointer: %v, %v", in, err)
	}
	if in, err := arguments[*order]([]json.RawMessage{json.RawMessage(`null`)}); err != nil || in != pointer {
		t.Errorf("a pointer: %v, %v", in, err)
	}
	if in, err := arguments[[]byte]([]json.RawMessage{json.RawMessage(`"dGVh"`), nil}); err != nil || string(in) != "tea" {
		t.Errorf("bytes: %s, %v", in, err)
	}
}

func wantArguments[In any](t *testing.T, call string, args []json.RawMessage, want string, text func(In) string) {
	t.Helper()
	in, err := arguments[In](args)
	if got := text(in); err == nil && got != want || err != nil && (want != "error" || strings.Contains(err.Error(), "panic")) {
		t.Errorf("%s into %T: %s, %v; want %s", call, in, got, err, want)
	}
}
