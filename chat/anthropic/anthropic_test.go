package anthropic_test

import (
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/anthropic"
	"github.com/dohost/dohost/internal/providertest"
)

func model(a providertest.Config) (chat.Model, error) {
	return anthropic.New("double", &anthropic.Options{
		Key: a.Key, BaseURL: "http://provider", Client: a.HTTP(), Retries: a.Retries, Strategy: a.Strategy,
	})
}

// thinking returns a model with thinking enabled.
func thinking(a providertest.Config) (chat.Model, error) {
	return anthropic.New("double", &anthropic.Options{
		Key: a.Key, BaseURL: "http://provider", Client: a.HTTP(), Retries: a.Retries, Strategy: a.Strategy,
		Params: func(p *sdk.MessageNewParams) { p.Thinking = sdk.ThinkingConfigParamOfEnabled(1024) },
	})
}

// distinctPlaces are the places that distinguish the runs of a reply.
var distinctPlaces = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceAwaited, dohost.PlaceDurable}

func TestMessagesBySyntheticMessage(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{RefusePrefill: true, Places: distinctPlaces}, model)
}

func TestMessagesByPrefill(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Strategy: chat.ContinuePrefill, Places: distinctPlaces}, model)
}

func TestMessagesByRetry(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Strategy: chat.ContinueRetry, RefusePrefill: true, Places: distinctPlaces}, model)
}

func TestMessagesWithToolAndThinking(t *testing.T) {
	providertest.EveryPoint(t, providertest.Case{Tool: true, RefusePrefill: true, Places: distinctPlaces}, thinking)
}

func TestToolCalls(t *testing.T) { providertest.Calls(t, model, "toolu_0") }

func TestToolCallsCutOffByLengthLimit(t *testing.T) { providertest.TruncatedCalls(t, model) }

func TestOutput(t *testing.T) { providertest.Output(t, model, false, true) }

func TestProviderFailures(t *testing.T) { providertest.Failures(t, model) }

func TestProviderFailuresInConversations(t *testing.T) { providertest.Conversations(t, model) }

// A request that continues an interrupted text has thinking disabled.
func TestThinkingIsDisabledInContinuation(t *testing.T) {
	d := &providertest.Double{Plan: func(n int, _ []byte) providertest.Plan { return providertest.Plan{After: 3, Sever: n == 0} }}
	r := providertest.One(t, thinking, d)
	if want := providertest.Text(0, 3) + providertest.Text(1, 8); r.Message.PlainText() != want {
		t.Errorf("%q: %q", r.Status, r.Message.PlainText())
	}
	for i, want := range []string{`"thinking":{"budget_tokens":1024,"type":"enabled"}`, `"thinking":{"type":"disabled"}`} {
		if asked := string(d.Generations()[i].Asked); !strings.Contains(asked, want) {
			t.Errorf("generation %d was asked for with %s", i, asked)
		}
	}
}

func TestKeyIsRequired(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	if _, err := anthropic.New("double", nil); err == nil || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY") {
		t.Error(err)
	}
}

func TestStreamResetReportsTruncation(t *testing.T) {
	providertest.TruncatedStream(t, model, `{"type":"ping"}`)
}

func TestFiles(t *testing.T) { providertest.Files(t, model) }

func TestMessagesParts(t *testing.T) { providertest.Parts(t, model) }

func TestUsage(t *testing.T) { providertest.Usage(t, model, true) }
