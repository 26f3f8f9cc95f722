package openai_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/openai"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/providertest"
)

func options(a providertest.Config) openai.Options {
	return openai.Options{
		Key: a.Key, BaseURL: "http://provider/v1", Client: a.HTTP(), Retries: a.Retries, Strategy: a.Strategy,
	}
}

func completions(a providertest.Config) (chat.Model, error) {
	return openai.NewCompletions("double", &openai.CompletionsOptions{Options: options(a)})
}

func responses(a providertest.Config) (chat.Model, error) {
	return openai.NewResponses("double", &openai.ResponsesOptions{Options: options(a)})
}

func ephemeral(a providertest.Config) (chat.Model, error) {
	return openai.NewResponses("double", &openai.ResponsesOptions{Options: options(a), Ephemeral: true})
}

// distinctPlaces are the places that distinguish the runs of a reply; most has more, for the model with the most stored
// state.
var (
	distinctPlaces = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceAwaited, dohost.PlaceDurable}
	storedPlaces   = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceAwaited, dohost.PlaceDurable, dohost.PlaceCommit, dohost.PlaceSync, dohost.PlaceResume, dohost.PlaceTransaction}
)

func TestCompletionsBySyntheticMessage(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{RefusePrefill: true, Places: distinctPlaces}, completions)
}

func TestCompletionsByPrefill(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Strategy: chat.ContinuePrefill, Places: distinctPlaces}, completions)
}

func TestCompletionsByRetry(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Strategy: chat.ContinueRetry, RefusePrefill: true, Places: distinctPlaces}, completions)
}

func TestCompletionsWithATool(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Tool: true, RefusePrefill: true, Places: distinctPlaces}, completions)
}

func TestResponsesAreResumed(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Once: true, RefusePrefill: true, Places: distinctPlaces}, responses)
}

func TestResponsesAreResumedWithATool(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Once: true, Tool: true, RefusePrefill: true, Places: storedPlaces}, responses)
}

func TestResponsesDroppedAreNotResumed(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Drop: true, RefusePrefill: true, Places: distinctPlaces}, responses)
}

func TestResponsesThatAreEphemeralBySyntheticMessage(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{RefusePrefill: true, Places: distinctPlaces}, ephemeral)
}

func TestToolCalls(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Calls(t, completions, "call_0") })
	t.Run("responses", func(t *testing.T) { providertest.Calls(t, responses, "call_0") })
}

func TestToolCallsCutOffByLengthLimit(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.TruncatedCalls(t, completions) })
	t.Run("responses", func(t *testing.T) { providertest.TruncatedCalls(t, responses) })
}

func TestProviderFailures(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Failures(t, completions) })
	t.Run("responses", func(t *testing.T) { providertest.Failures(t, responses) })
	t.Run("ephemeral", func(t *testing.T) { providertest.Failures(t, ephemeral) })
}

func TestProviderFailuresInConversations(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Conversations(t, completions) })
	t.Run("ephemeral", func(t *testing.T) { providertest.Conversations(t, ephemeral) })
}

// A background answer continues when its connection is severed, is fetched to its end, and is billed once. A silent
// answer is fetched a few times, and then requested again.
func TestResponsesFailuresInBackground(t *testing.T) {
	truncated := &providertest.Double{Pace: time.Second, Plan: func(int, []byte) providertest.Plan { return providertest.Plan{After: 3, Sever: true} }}
	r := providertest.One(t, responses, truncated)
	if got := len(truncated.Generations()); r.Message.PlainText() != providertest.Text(0, 8) || got != 1 || truncated.Fetched() != 2 {
		t.Errorf("%q: %q; %d generations are billed, %d times something was fetched", r.Status, r.Message.PlainText(), got, truncated.Fetched())
	}
	silent := &providertest.Double{Plan: func(n int, _ []byte) providertest.Plan {
		return providertest.Plan{After: 3, Silent: n == 0}
	}}
	r = providertest.One(t, responses, silent)
	if want := providertest.Text(0, 3) + providertest.Text(1, 8); r.Message.PlainText() != want || silent.Cancelled() != 1 {
		t.Errorf("%q: %q; %d were cancelled", r.Status, r.Message.PlainText(), silent.Cancelled())
	}
}

// Stopping a reply cancels the answer at the provider.
func TestReplyStoppedIsCancelledAtProvider(t *testing.T) {
	d := &providertest.Double{Pace: time.Second}
	m, err := responses(providertest.Config{Double: d, Key: providertest.Key})
	if err != nil {
		t.Fatal(err)
	}
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{providertest.Class(m, chat.Options{}, nil)},
	}, func(t *testing.T, h *dohosttest.Host) {
		h.Client(func(ctx context.Context) error {
			_, err := providertest.Ask(ctx, h, "a", "one")
			return err
		})
		time.Sleep(3500 * time.Millisecond)
		err := providertest.Talks.Get(h, "a").Do(t.Context(), func(ctx context.Context, a *providertest.Talk) error {
			_, err := chat.Cancel(ctx, a, "one")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if d.Cancelled() != 1 {
			t.Errorf("%d were cancelled", d.Cancelled())
		}
	})
}

func TestKeyIsRequired(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", "")
	_, err := openai.NewCompletions("double", nil)
	_, again := openai.NewResponses("double", nil)
	if err == nil || again == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY") {
		t.Error(err, again)
	}
}

func TestStreamResetReportsTruncation(t *testing.T) {
	t.Run("completions", func(t *testing.T) {
		providertest.TruncatedStream(t, completions, `{"choices":[{"index":0,"delta":{"content":"one"}}]}`)
	})
	t.Run("responses", func(t *testing.T) {
		providertest.TruncatedStream(t, responses, `{"type":"response.created","response":{"id":"resp_0"}}`)
	})
}

func TestUsage(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Usage(t, completions, true) })
	t.Run("refused", func(t *testing.T) { providertest.Usage(t, completions, false) })
	t.Run("responses", func(t *testing.T) { providertest.Usage(t, responses, true) })
	t.Run("ephemeral", func(t *testing.T) { providertest.Usage(t, ephemeral, true) })
}

func TestOutput(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Output(t, completions, true, false) })
	t.Run("responses", func(t *testing.T) { providertest.Output(t, responses, true, true) })
	t.Run("ephemeral", func(t *testing.T) { providertest.Output(t, ephemeral, true, true) })
}

func TestFiles(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Files(t, completions) })
	t.Run("responses", func(t *testing.T) { providertest.Files(t, responses) })
}

func TestPrompts(t *testing.T) {
	t.Run("completions", func(t *testing.T) { providertest.Parts(t, completions) })
	t.Run("responses", func(t *testing.T) { providertest.Parts(t, responses) })
}
