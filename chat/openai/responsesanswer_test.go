package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/openai"
)

// completeAnswer is a complete answer of the provider, with an unencrypted reasoning.
const completeAnswer = `{"id":"resp_0","status":"completed","background":true,"output":[
	{"id":"rs_0","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
	{"id":"msg_0","type":"message","content":[{"type":"output_text","text":"one two"}]}]}`

// completedAnswerModel returns a model with a completed answer, and the prompt after an interruption after its word
// "one".
func completedAnswerModel(t *testing.T) (m *openai.Responses, p *chat.Prompt, posted *int) {
	posted = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			*posted++
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, completeAnswer)
	}))
	t.Cleanup(s.Close)
	m, err := openai.NewResponses("double", &openai.ResponsesOptions{Options: openai.Options{Key: "k", BaseURL: s.URL, Retries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	p = &chat.Prompt{
		Messages: []chat.Message{chat.Text("m", chat.RoleUser, "Count.")}, Interrupted: true,
		Checkpoint: func(v any) (bool, error) {
			return true, json.Unmarshal([]byte(`{"openaiResponse":"resp_0","step":1}`), v)
		},
	}
	const partial = `{"id":"a","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"one"}]}`
	if err := json.Unmarshal([]byte(partial), &p.Partial); err != nil {
		t.Fatal(err)
	}
	return m, p, posted
}

// Reasoning in a fetched answer is not part of its text.
func TestAnswerThatIsResumedOmitsReasoning(t *testing.T) {
	m, p, posted := completedAnswerModel(t)
	var text string
	for c, err := range m.ResumeStream(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
		text += c.Text("delta")
	}
	if text != " two" || *posted != 0 {
		t.Errorf("it has said %q, and was asked again %d times", text, *posted)
	}
}

// The reader of a fetched answer may stop anywhere.
func TestAnswerReaderMayStopAResumption(t *testing.T) {
	m, p, _ := completedAnswerModel(t)
	for range m.ResumeStream(t.Context(), p) {
		break
	}
}

// If fetching an answer fails temporarily, the model does not request a new one, whichever of the two requests failed.
func TestResumeFailureRequestsNoNewAnswer(t *testing.T) {
	for _, c := range []struct {
		status int
		stream bool
	}{{http.StatusConflict, false}, {http.StatusRequestTimeout, false}, {http.StatusBadGateway, true}} {
		posted := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch streams := r.URL.Query().Get("stream") == "true"; {
			case r.Method == http.MethodPost:
				posted++
			case streams == c.stream:
				w.WriteHeader(c.status)
			default:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"id":"resp_0","status":"in_progress","background":true}`)
			}
		}))
		m, err := openai.NewResponses("double", &openai.ResponsesOptions{Options: openai.Options{Key: "k", BaseURL: s.URL, Retries: -1}})
		if err != nil {
			t.Fatal(err)
		}
		_, p, _ := completedAnswerModel(t)
		p.SaveCheckpoint = func(context.Context, any) error { return nil }
		for _, failed := range m.ResumeStream(t.Context(), p) {
			err = failed
		}
		if e, ok := errors.AsType[*chat.ModelError](err); !ok || !e.Truncated || e.Status != c.status || posted != 0 {
			t.Errorf("%d, stream %v: asked again %d times: %v", c.status, c.stream, posted, err)
		}
		s.Close()
	}
}

// A server may reuse the ids of calls in each answer: the calls are different.
func TestToolCallIDsMayBeReused(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		const call = `{"index":0,"id":"f:0","function":{"name":"f","arguments":"{}"}}`
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[%s]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n", call)
	}))
	defer s.Close()
	m, err := openai.NewCompletions("double", &openai.CompletionsOptions{Options: openai.Options{Key: "k", BaseURL: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	p := &chat.Prompt{Messages: []chat.Message{chat.Text("m", chat.RoleUser, "Count.")}}
	const partial = `{"id":"a","role":"assistant","parts":[{"type":"step-start"},
		{"type":"tool-f","toolCallId":"f:0","state":"output-available","input":{},"output":1}]}`
	if err := json.Unmarshal([]byte(partial), &p.Partial); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for c, err := range m.Stream(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
		if id := c.Text("toolCallId"); id != "" {
			ids[id] = true
		}
	}
	if len(ids) != 1 || ids["f:0"] {
		t.Errorf("the calls are %v", ids)
	}
}
