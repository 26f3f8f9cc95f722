package anthropic_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/anthropic"
	"github.com/dohost/dohost/internal/providertest"
)

// A prompt of only the newest messages may begin with an assistant's message.
func TestPromptMayBeginWithAssistant(t *testing.T) {
	d := &providertest.Double{}
	m, err := model(providertest.Config{Double: d, Key: providertest.Key})
	if err != nil {
		t.Fatal(err)
	}
	p := &chat.Prompt{Messages: []chat.Message{chat.Text("a", chat.RoleAssistant, "Two."), chat.Text("b", chat.RoleUser, "And then?")}}
	for _, err := range m.Stream(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if asked := string(d.Generations()[0].Asked); !strings.Contains(asked, "Two.") || !strings.Contains(asked, "And then?") {
		t.Errorf("it is asked %s", asked)
	}
}

// headerRecorder records the headers of a request.
type headerRecorder struct{ http.Header }

// RoundTrip implements http.RoundTripper.
func (s *headerRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	s.Header = r.Header
	return nil, io.ErrUnexpectedEOF
}

// Secrets in the environment for Anthropic itself are not sent with another key.
func TestSecretsOfEnvironmentAreNotSent(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "sk-ant-oat-Of-The-Environment")
	s := &headerRecorder{}
	m, err := anthropic.New("double", &anthropic.Options{
		BaseURL: "http://provider", Key: "theirs", Retries: -1, Client: &http.Client{Transport: s},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range m.Stream(t.Context(), &chat.Prompt{Messages: []chat.Message{chat.Text("m", chat.RoleUser, "Count.")}}) {
	}
	if s.Get("X-Api-Key") != "theirs" || s.Get("Authorization") != "" {
		t.Errorf("the headers are %v", s.Header)
	}
}
