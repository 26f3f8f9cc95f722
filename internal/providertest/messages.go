package providertest

import (
	"fmt"
	"net/http"
	"strings"
)

// messagesRequest is the body of POST /messages.
type messagesRequest struct {
	Model     string `json:"model"`
	Stream    bool   `json:"stream"`
	MaxTokens int    `json:"max_tokens"`
	Thinking  *struct {
		Type string `json:"type"`
	} `json:"thinking"`
	Messages []struct {
		Role    string `json:"role"`
		Content []struct {
			Type      string `json:"type"`
			Text      string `json:"text"`
			ID        string `json:"id"`
			ToolUseID string `json:"tool_use_id"`
			Signature string `json:"signature"`
		} `json:"content"`
	} `json:"messages"`
}

// invalid returns the error text for an invalid request, or "".
func (q *messagesRequest) invalid(refusePrefill bool) string {
	if q.Model == "" || !q.Stream || q.MaxTokens <= 0 || len(q.Messages) == 0 {
		return fmt.Sprintf("model %q, stream %v, max_tokens %d, %d messages", q.Model, q.Stream, q.MaxTokens, len(q.Messages))
	}
	open := map[string]bool{}
	thinks := q.Thinking != nil && q.Thinking.Type != "disabled"
	for i, m := range q.Messages {
		for j, b := range m.Content {
			switch {
			case b.Type == "text" && strings.TrimSpace(b.Text) == "":
				return fmt.Sprintf("messages.%d: text content blocks must contain non-whitespace text", i)
			case m.Role == "assistant" && (b.Type == "image" || b.Type == "document"):
				return fmt.Sprintf("messages.%d: an assistant message cannot contain %s blocks", i, b.Type)
			case b.Type == "tool_result" && !open[b.ToolUseID]:
				return fmt.Sprintf("messages.%d: unexpected tool_use_id %q", i, b.ToolUseID)
			case b.Type == "tool_use" && thinks && m.Content[0].Type != "thinking":
				return fmt.Sprintf("messages.%d.content.0: expected thinking, but found %s", i, m.Content[0].Type)
			case b.Type == "thinking" && b.Signature != "signed":
				return fmt.Sprintf("messages.%d.content.%d: invalid signature in thinking block", i, j)
			case b.Type == "tool_result":
				delete(open, b.ToolUseID)
			}
		}
		if len(open) > 0 {
			return fmt.Sprintf("messages.%d: tool_use ids were found without tool_result blocks: %v", i, open)
		}
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				open[b.ID] = true
			}
		}
	}
	last := q.Messages[len(q.Messages)-1]
	switch end := last.Content[len(last.Content)-1]; {
	case q.Messages[0].Role != "user":
		return "the first message is not the user's"
	case len(open) > 0:
		return "it ends with calls"
	case last.Role == "assistant" && refusePrefill:
		return "This model does not support assistant message prefill. The conversation must end with a user message."
	case last.Role == "assistant" && strings.TrimRight(end.Text, " \t\n") != end.Text:
		return "messages: final assistant content cannot end with trailing whitespace"
	case last.Role == "assistant" && thinks:
		return "prefill is not possible with thinking"
	}
	return ""
}

// messages answers POST /messages.
func (d *Double) messages(w http.ResponseWriter, r *http.Request) {
	var q messagesRequest
	if r.Header.Get("Anthropic-Version") == "" {
		d.refuse(w, http.StatusBadRequest, "anthropic-version: header is required")
		return
	}
	g, ok := d.startGeneration(w, r, &q)
	if !ok {
		return
	}
	s := newStream(w, true)
	s.send("message_start", map[string]any{"message": map[string]any{
		"id": fmt.Sprintf("msg_%d", g.Number), "type": "message", "role": "assistant", "model": q.Model, "content": []any{},
		"usage": map[string]any{
			"input_tokens": inputTokens - cachedTokens - 10, "cache_creation_input_tokens": 10, "cache_read_input_tokens": cachedTokens, "output_tokens": 1,
		},
	}})
	s.send("ping", map[string]any{})
	index := 0
	delta := func(d map[string]any) { s.send("content_block_delta", map[string]any{"index": index, "delta": d}) }
	begin := func(b map[string]any) {
		s.send("content_block_start", map[string]any{"index": index, "content_block": b})
	}
	end := func() {
		s.send("content_block_stop", map[string]any{"index": index})
		index++
	}
	if q.Thinking != nil && q.Thinking.Type != "disabled" {
		begin(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		delta(map[string]any{"type": "thinking_delta", "thinking": fmt.Sprintf("thought %d", g.Number)})
		delta(map[string]any{"type": "signature_delta", "signature": "signed"})
		end()
	}
	begin(map[string]any{"type": "text", "text": ""})
	fail := func() {
		s.send("error", map[string]any{"error": map[string]any{"type": "overloaded_error", "message": "Overloaded"}})
	}
	if !d.follow(r.Context(), g, s, func(text string) { delta(map[string]any{"type": "text_delta", "text": text}) }, fail) {
		return
	}
	end()
	stop := "end_turn"
	if g.plan.Tool != "" {
		stop = "tool_use"
		begin(map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", g.Number), "name": g.plan.Tool, "input": map[string]any{}})
		half := len(g.plan.Input) / 2
		delta(map[string]any{"type": "input_json_delta", "partial_json": g.plan.Input[:half]})
		delta(map[string]any{"type": "input_json_delta", "partial_json": g.plan.Input[half:]})
		end()
	}
	if g.plan.Length {
		stop = "max_tokens"
	}
	s.send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop}, "usage": map[string]any{"output_tokens": g.plan.Words}})
	s.send("message_stop", map[string]any{})
}
