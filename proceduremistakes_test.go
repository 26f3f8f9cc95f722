package dohost

import (
	"context"
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
	NewProcedure("test.twice", fn)
	NewProcedure("test.twice", fn)
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
}
