package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// completionsRequest is the body of POST /chat/completions.
type completionsRequest struct {
	Model   string `json:"model"`
	Stream  bool   `json:"stream"`
	Options *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

// invalid returns the error text for an invalid request, or "".
func (q *completionsRequest) invalid(refusePrefill bool) string {
	if q.Model == "" || !q.Stream || len(q.Messages) == 0 {
		return fmt.Sprintf("model %q, stream %v, %d messages", q.Model, q.Stream, len(q.Messages))
	}
	open := map[string]bool{}
	for i, m := range q.Messages {
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Sprintf("messages[%d]: calls without an answer: %v", i, open)
		}
		if m.Role == "tool" && !open[m.ToolCallID] {
			return fmt.Sprintf("messages[%d]: an answer to no call: %q", i, m.ToolCallID)
		}
		delete(open, m.ToolCallID)
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
	}
	if last := q.Messages[len(q.Messages)-1]; len(open) > 0 || refusePrefill && last.Role == "assistant" {
		return fmt.Sprintf("it ends with a message of the %s, and %d calls", last.Role, len(open))
	}
	return ""
}

// completions answers POST /chat/completions.
func (d *Double) completions(w http.ResponseWriter, r *http.Request) {
	var q completionsRequest
	g, ok := d.startGeneration(w, r, &q)
	if !ok {
		return
	}
	s := newStream(w, false)
	chunk := func(delta map[string]any, finish any) {
		s.send("", map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", g.Number), "object": "chat.completion.chunk", "created": 1, "model": q.Model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		})
	}
	chunk(map[string]any{"role": "assistant", "content": ""}, nil)
	fail := func() { s.raw(`{"error": {"message": "overloaded", "type": "server_error"}}`) }
	if !d.follow(r.Context(), g, s, func(text string) { chunk(map[string]any{"content": text}, nil) }, fail) {
		return
	}
	finish := "stop"
	if g.plan.Tool != "" {
		finish = "tool_calls"
		call := func(id, name, arguments string) {
			f := map[string]any{"index": 0, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}
			if id != "" {
				f["id"] = id
			}
			chunk(map[string]any{"tool_calls": []any{f}}, nil)
		}
		id, half := fmt.Sprintf("call_%d", g.Number), len(g.plan.Input)/2
		call("", g.plan.Tool, "") // the id comes late,
		call(id, g.plan.Tool, "")
		call(id, g.plan.Tool, "") // and again
		call("", "", g.plan.Input[:half])
		call("", "", g.plan.Input[half:])
	}
	if g.plan.Length {
		finish = "length"
	}
	chunk(map[string]any{}, finish)
	if q.Options != nil && q.Options.IncludeUsage {
		s.send("", map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", g.Number), "object": "chat.completion.chunk", "created": 1, "model": q.Model, "choices": []any{},
			"usage": map[string]any{
				"prompt_tokens": inputTokens, "completion_tokens": g.plan.Words, "total_tokens": inputTokens + g.plan.Words,
				"prompt_tokens_details": map[string]any{"cached_tokens": cachedTokens},
			},
		})
	}
	s.raw("[DONE]")
}
