package providertest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// responsesRequest is the body of POST /responses.
type responsesRequest struct {
	Model      string `json:"model"`
	Stream     bool   `json:"stream"`
	Background bool   `json:"background"`
	Store      *bool  `json:"store"`
	Input      []struct {
		Type   string `json:"type"`
		Role   string `json:"role"`
		CallID string `json:"call_id"`
	} `json:"input"`
}

func (q *responsesRequest) invalid(refusePrefill bool) string {
	if q.Model == "" || !q.Stream || len(q.Input) == 0 {
		return fmt.Sprintf("model %q, stream %v, %d items", q.Model, q.Stream, len(q.Input))
	}
	if q.Background && q.Store != nil && !*q.Store {
		return "background mode requires store"
	}
	open := map[string]bool{}
	for i, item := range q.Input {
		switch item.Type {
		case "function_call":
			open[item.CallID] = true
		case "function_call_output":
			if !open[item.CallID] {
				return fmt.Sprintf("input[%d]: no tool call found for function call output with call_id %q", i, item.CallID)
			}
			delete(open, item.CallID)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("no tool output found for function calls %v", open)
	}
	if refusePrefill && q.Input[len(q.Input)-1].Role == "assistant" {
		return "it ends with a message of the assistant"
	}
	return ""
}

// responses answers POST /responses.
func (d *Double) responses(w http.ResponseWriter, r *http.Request) {
	var q responsesRequest
	if g, ok := d.startGeneration(w, r, &q); ok {
		d.streamResponse(w, r, g, 0)
	}
}

// response answers requests for a response by its id.
func (d *Double) response(w http.ResponseWriter, r *http.Request, rest string) {
	id, verb, _ := strings.Cut(rest, "/")
	d.mu.Lock()
	var g *Generation
	for _, have := range d.all {
		if have.ID == id && have.stored && (have.background || have.status == "completed") {
			g = have
		}
	}
	if g != nil && verb == "cancel" {
		d.cancelled++
		if g.status == "in_progress" {
			g.status = "cancelled"
		}
	} else {
		d.fetched++
	}
	d.mu.Unlock()
	switch {
	case g == nil:
		d.refuse(w, http.StatusNotFound, fmt.Sprintf("Response with id '%s' not found.", id))
	case r.URL.Query().Get("stream") == "true" && !g.background:
		d.refuse(w, http.StatusBadRequest, "this response cannot be streamed")
	case r.URL.Query().Get("stream") == "true":
		after, err := strconv.Atoi(r.URL.Query().Get("starting_after"))
		if err == nil {
			after++
		}
		d.streamResponse(w, r, g, after)
	default:
		d.mu.Lock()
		now := g.object(g.words)
		d.mu.Unlock()
		answer(w, http.StatusOK, now)
	}
}

// object encodes a response. words is the number of its words. The caller holds the lock, or the generation has ended.
func (g *Generation) object(words int) map[string]any {
	status := g.status
	var output []any
	if g.plan.Length && status == "completed" {
		status = "incomplete"
	}
	done := status != "in_progress"
	item := map[string]any{"id": fmt.Sprintf("msg_%d", g.Number), "type": "message", "role": "assistant", "status": status,
		"content": []any{map[string]any{"type": "output_text", "text": Text(g.Number, words), "annotations": []any{}}}}
	output = append(output, item)
	if done && g.plan.Tool != "" {
		output = append(output, g.call())
	}
	o := map[string]any{"id": g.ID, "object": "response", "created_at": g.begun.Unix(), "status": status,
		"background": g.background, "output": output, "model": "double"}
	if done {
		o["usage"] = map[string]any{
			"input_tokens": inputTokens, "input_tokens_details": map[string]any{"cached_tokens": cachedTokens},
			"output_tokens": g.plan.Words, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": inputTokens + g.plan.Words,
		}
	}
	if status == "incomplete" {
		o["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	return o
}

func (g *Generation) call() map[string]any {
	status := "completed"
	if g.plan.Length {
		status = "incomplete"
	}
	return map[string]any{"id": fmt.Sprintf("fc_%d", g.Number), "type": "function_call", "status": status,
		"call_id": fmt.Sprintf("call_%d", g.Number), "name": g.plan.Tool, "arguments": g.plan.Input}
}

// streamResponse sends the events of a response, without the first ones up to from.
func (d *Double) streamResponse(w http.ResponseWriter, r *http.Request, g *Generation, from int) {
	s := newStream(w, true)
	number := 0
	send := func(event string, v map[string]any) {
		v["sequence_number"] = number
		if number >= from {
			s.send(event, v)
		}
		number++
	}
	message, call := fmt.Sprintf("msg_%d", g.Number), fmt.Sprintf("fc_%d", g.Number)
	begun := map[string]any{"id": g.ID, "object": "response", "status": "in_progress", "background": g.background, "output": []any{}}
	send("response.created", map[string]any{"response": begun})
	send("response.in_progress", map[string]any{"response": begun})
	send("response.output_item.added", map[string]any{"output_index": 0, "item": map[string]any{"id": message, "type": "message", "content": []any{}}})
	fail := func() {
		send("response.failed", map[string]any{"response": map[string]any{"id": g.ID, "status": "failed",
			"error": map[string]any{"code": "server_error", "message": "overloaded"}}})
	}
	word := func(text string) {
		send("response.output_text.delta", map[string]any{"item_id": message, "output_index": 0, "content_index": 0, "delta": text})
	}
	if !d.follow(r.Context(), g, s, word, fail) {
		return
	}
	send("response.output_text.done", map[string]any{"item_id": message, "output_index": 0, "content_index": 0, "text": Text(g.Number, g.plan.Words)})
	if g.plan.Tool != "" {
		item := g.call()
		item["arguments"] = ""
		send("response.output_item.added", map[string]any{"output_index": 1, "item": item})
		send("response.function_call_arguments.delta", map[string]any{"item_id": call, "output_index": 1, "delta": g.plan.Input})
		send("response.function_call_arguments.done", map[string]any{"item_id": call, "output_index": 1, "arguments": g.plan.Input})
		for range 2 { // sent twice
			send("response.output_item.done", map[string]any{"output_index": 1, "item": g.call()})
		}
	}
	d.mu.Lock()
	whole := g.object(g.words)
	d.mu.Unlock()
	if g.plan.Length {
		send("response.incomplete", map[string]any{"response": whole})
	} else {
		send("response.completed", map[string]any{"response": whole})
	}
}
