package dohost

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestProcedureMistakes makes procedures with mistakes, which Open returns.
func TestProcedureMistakes(t *testing.T) {
	before := maps.Clone(procedures.byName)
	defer func() { procedures.byName, procedures.errs = before, nil }()
	fn := func(context.Context, any, int) (int, error) { return 0, nil }
	NewProcedure("", fn)
	first := NewProcedure("test.twice", fn)
	NewProcedure("test.twice", func(context.Context, any, int) (int, error) { return 0, errors.New("the second one") })
	NewProcedure[int, int]("test.nil", nil)
	NewProcedure("test.channel", func(context.Context, any, int) (chan int, error) { return nil, nil })
	_, err := Open(t.TempDir(), nil)
	if err == nil {
		t.Fatal("Open returned no error")
	}
	for _, want := range []string{`"": want a name`, `"test.twice": the name is taken`, `"test.nil": `, `"test.channel": `} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%d of %q: %v", n, want, err)
		}
	}
	if _, err := procedures.byName[first.method](t.Context(), nil, []byte("1")); err != nil {
		t.Errorf("the name is that of another function: %v", err)
	}
	for _, name := range []string{"", "test.nil", "test.channel"} {
		if procedures.byName[reservedMethods+name] != nil {
			t.Errorf("the procedure %q exists", name)
		}
	}
}

// TestProcedureThatIsMissing calls a procedure that the program does not have, from this host, and from one with another program, as during an upgrade.
func TestProcedureThatIsMissing(t *testing.T) {
	const ns = Namespace[struct{}]("thing")
	h, err := Open(t.TempDir(), nil, Bind(ns, func(context.Context, *State) (*struct{}, error) { return &struct{}{}, nil }, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	missing := Procedure[int, int]{reservedMethods + "test.missing"}
	call := &RemoteCall{ID: ns.Get(h, "a").ID(), Method: missing.method, CallID: "1", Argument: []byte("1")}
	_, far := decodeAnswer(call, h.AnswerCall(t.Context(), call))
	_, near := missing.Call(t.Context(), h, call.ID, 1, nil)
	for _, c := range []struct {
		from      string
		err       error
		retryable bool
	}{{"this host", near, false}, {"another host", far, true}} {
		e, ok := c.err.(*Error)
		if !ok || !errors.Is(e, ErrNotFound) || e.Outcome != OutcomeNotRun || e.Retryable != c.retryable {
			t.Errorf("from %s: %+v", c.from, c.err)
		}
	}
}
