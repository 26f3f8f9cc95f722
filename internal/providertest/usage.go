package providertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// The tokens of each prompt that a double bills. An answer has as many tokens as words.
const (
	inputTokens  = 120
	cachedTokens = 20
)

// checkUsage compares the recorded calls with the number of billed generations. A complete call has the usage that the double has sent.
func checkUsage(ctx context.Context, h *dohosttest.Host, billed int) error {
	return Talks.Get(h, "a").Do(ctx, func(ctx context.Context, t *Talk) error {
		n := 0
		for c, err := range chat.ModelCalls(ctx, t) {
			n++
			if err != nil {
				return err
			}
			want := chat.Usage{Model: "double", InputTokens: inputTokens, CachedInputTokens: cachedTokens, OutputTokens: c.OutputTokens}
			if c.Outcome == chat.ModelCallCompleted && (c.Usage != want || c.OutputTokens > 8) || c.InputTokens == 0 {
				return fmt.Errorf("the usage is %+v", c)
			}
		}
		if n < billed {
			return fmt.Errorf("%d calls are recorded, %d are billed", n, billed)
		}
		return nil
	})
}

// Usage expects an answer to have the usage that the double sends. If the double does not accept the question for it, the answer has an
// estimate, and no later request asks again.
func Usage(t *testing.T, make New, accepts bool) {
	t.Helper()
	d := &Double{RefuseUsage: !accepts}
	m, err := make(Config{Double: d, Key: Key})
	if err != nil {
		t.Fatal(err)
	}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{Class(m, chat.Options{}, nil)}}, func(t *testing.T, h *dohosttest.Host) {
		for _, id := range []string{"one", "two"} {
			if r, err := Ask(t.Context(), h, "a", id); err != nil || r.Status != chat.StatusCompleted {
				t.Fatal(r.Status, r.Error, err)
			}
		}
		err := Talks.Get(h, "a").Do(t.Context(), func(ctx context.Context, a *Talk) error {
			u, err := chat.AgentUsage(ctx, a)
			if accepts && (u.InputTokens != 2*inputTokens || u.CachedInputTokens != 2*cachedTokens || u.OutputTokens != 16 || u.Estimated) {
				t.Errorf("the usage is %+v", u)
			}
			if !accepts && (u.Estimates != 2 || u.OutputTokens == 0 || len(d.Refused()) != 1) {
				t.Errorf("the usage is %+v, %q were refused", u, d.Refused())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
