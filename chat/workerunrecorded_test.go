package chat_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// TestWorkerUnrecordedTool runs a worker twice that calls an unrecorded tool: two equal calls in one step, the first of them fails, and
// an equal call in the next step. All calls of a run have different keys, and the second run has those of the first. The
// ledger has the answers of the model alone.
func TestWorkerUnrecordedTool(t *testing.T) {
	var keys []string
	tool := keyTool("a", ledger.PolicyIdempotent, &keys, func(run int) error {
		if run%3 == 1 {
			return errors.New("refused")
		}
		return nil
	})
	tool.Unrecorded = true
	w := &chat.Worker[string, string]{
		Name: "w", Durable: true, Tools: []chat.Tool{tool, keyTool("b", ledger.PolicyIdempotent, &[]string{}, nil)},
		Model: inSteps("done", []string{"a:1", "a:1"}, []string{"a:1"}),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for range 2 {
			if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
		}
		if len(keys) != 6 || !slices.Equal(keys[:3], keys[3:]) {
			t.Errorf("keys %q", keys)
		}
		if slices.Sort(keys); len(slices.Compact(keys)) != 3 {
			t.Errorf("different keys: %q", keys)
		}
		if _, err := w.Run(ctx, c, "another"); err != nil || len(keys) != 9 {
			t.Errorf("%q, %v", keys, err)
		}
		operations := 0
		for op, err := range ledger.All(ctx, c.Object()) {
			if operations++; err != nil || !strings.HasSuffix(op.Kind, "/model step") {
				t.Errorf("%+v, %v", op, err)
			}
		}
		if operations == 0 {
			t.Error("the ledger has no answer of the model")
		}
		if n := len(w.Kinds()); n != 2 { // of the tool b and of the answers
			t.Errorf("%d kinds", n)
		}
		tool.Policy = 0
		wrong := &chat.Worker[string, string]{Name: "w", Model: w.Model, Tools: []chat.Tool{tool}}
		if err := wrong.Check(); err == nil || !strings.Contains(err.Error(), "Unrecorded needs PolicyIdempotent") {
			t.Error(err)
		}
	})
}
