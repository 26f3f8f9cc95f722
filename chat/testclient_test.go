package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// reader is a client with a page that reconnects when its connection ends. It builds the page from frames alone, by
// its own rules, and checks at each frame that texts only grow.
type reader struct {
	h           hosted
	id          dohost.ID
	name        string
	ws          *websocket.Conn // nil if not connected
	resumeDelay time.Duration   // delay before the resume request

	// mayRestart allows texts to disappear: then the log restarts, with another start chunk and the results of tools,
	// and a later call of the handler says the next words.
	mayRestart bool

	views    map[string]*view // by request
	order    []string         // requests in order of arrival
	replaced *view            // the replay so far; nil outside of a replay
	messages []page           // the last transcript
	ended    map[string]frame // by request
	refused  map[string]bool  // requests that once found no space
	log      []string         // kinds of frames
	runs     toolRuns         // requests to other agents
}

// view is a reply as a reader sees it.
type view struct {
	message    string // id
	text       string
	next       uint64 // number of the next chunk
	tools      map[string]string
	outputs    []string // calls, in the order of their results
	mayRestart bool     // see reader
	from       uint64   // number of its start
	restarts   int      // how often the text has disappeared
	keptCalls  []string // calls with results that must appear again after that
}

// page is a message of a transcript.
type page struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// part is a part of a page.
type part struct {
	Type   string          `json:"type"`
	Text   string          `json:"text,omitempty"`
	State  string          `json:"state,omitempty"`
	CallID string          `json:"toolCallId,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
}

// calls returns the ids of the tool calls in a state: in the transcript, or else in the views.
func (r *reader) calls(state string) (ids []string) {
	known := map[string]bool{}
	for _, m := range r.messages {
		for _, p := range m.Parts {
			known[p.CallID] = true
			if p.CallID != "" && p.State == state {
				ids = append(ids, p.CallID)
			}
		}
	}
	for _, v := range r.views {
		for id, is := range v.tools {
			if !known[id] && is == state {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (p *page) text() (s string) {
	for _, part := range p.Parts {
		if part.Type == "text" {
			s += part.Text
		}
	}
	return s
}

// frame is any frame that a reader gets.
type frame struct {
	Type           string  `json:"type"`
	ID             string  `json:"id"`
	Body           string  `json:"body"`
	Done           bool    `json:"done"`
	Error          any     `json:"error"` // true, or the error for a frame
	Replay         bool    `json:"replay"`
	ReplayComplete bool    `json:"replayComplete"`
	Seq            *uint64 `json:"seq"`
	Outcome        string  `json:"outcome"`
	Reason         string  `json:"reason"`
	ProbeID        string  `json:"probeId"`
	Recovering     bool    `json:"recovering"`
	Messages       []page  `json:"messages"`
	Message        page    `json:"message"`
	toolEvent
	size int // bytes
}

// hosted has a host, which may be replaced.
type hosted interface{ Host() *dohost.Host }

var _ hosted = (*dohosttest.Host)(nil)

func newReader(h hosted, id dohost.ID, name string) *reader {
	return &reader{h: h, id: id, name: name, views: map[string]*view{}, ended: map[string]frame{}, refused: map[string]bool{}}
}

// connect connects the reader, and asks for a reply to resume, like the hook.
func (r *reader) connect(ctx context.Context) (err error) {
	serve := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.h.Host().ServeObject(w, q, r.id) })
	for range 20 {
		if r.ws != nil {
			return nil
		}
		if r.ws, _, err = sockettest.Dial(ctx, serve, "/?_pk="+r.name); err != nil {
			r.ws = nil
			time.Sleep(time.Second)
			continue
		}
		r.ws.SetReadLimit(32 << 20)
		r.replaced = nil
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "probe"})
	}
	return err
}

// sendFrame sends a frame. It ignores the end of the connection; the next receive reports that.
func (r *reader) sendFrame(ctx context.Context, f map[string]any) {
	data, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	_ = r.ws.Write(ctx, websocket.MessageText, data)
}

// ask sends a request with all messages that the reader knows, and a new one.
func (r *reader) ask(ctx context.Context, id, text string, more map[string]any) {
	var list []any
	for _, m := range r.messages {
		list = append(list, m)
	}
	if text != "" {
		list = append(list, map[string]any{"id": "user-" + id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}})
	}
	body := map[string]any{"messages": list, "trigger": "submit-message"}
	for name, v := range more {
		body[name] = v
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": map[string]any{"method": "POST", "body": string(raw)}})
}

// receive receives a frame. connected is false if the connection has ended.
func (r *reader) receive(ctx context.Context) (f frame, connected bool, err error) {
	kind, data, err := r.ws.Read(ctx)
	if err == nil && kind != websocket.MessageText {
		return f, true, fmt.Errorf("%s received a binary frame: %q", r.name, data)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return f, false, cause
		}
		_ = r.ws.CloseNow() // unless it is closed
		r.ws = nil
		if ce, closed := errors.AsType[websocket.CloseError](err); closed && ce.Code != dohost.CloseRestart {
			return f, false, fmt.Errorf("%s was closed: %w", r.name, err)
		}
		return f, false, nil
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, true, err
	}
	f.size = len(data)
	r.log = append(r.log, f.Type)
	if f.Done && r.views[f.ID] == nil && !r.refused[f.ID] && strings.Contains(f.Body, dohost.ErrNoSpace.Error()) {
		r.refused[f.ID] = true // the next request is as one after the loss of the first
		_ = r.ws.CloseNow()
		r.ws = nil
		time.Sleep(time.Second)
		return f, false, nil
	}
	if err := r.handleFrame(ctx, f); err != nil {
		return f, true, fmt.Errorf("%s: %w", r.name, err)
	}
	return f, true, nil
}

func (r *reader) handleFrame(ctx context.Context, f frame) error {
	switch f.Type {
	case "agent-tool-event":
		return r.runs.add(f)
	case "cf_agent_stream_resuming":
		time.Sleep(r.resumeDelay)
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_ack", "id": f.ID})
	case "cf_agent_chat_messages":
		for i, m := range f.Messages {
			if slices.ContainsFunc(f.Messages[:i], func(o page) bool { return o.ID == m.ID }) {
				return fmt.Errorf("message %s is there twice", m.ID)
			}
			for _, v := range r.views {
				if v.message == m.ID && !r.extends(v.text, m.text()) {
					return fmt.Errorf("the transcript has %q, the client received %q", m.text(), v.text)
				}
			}
		}
		r.messages = f.Messages
	case "cf_agent_message_updated":
		for i := range r.messages {
			if r.messages[i].ID == f.Message.ID {
				if !strings.HasPrefix(f.Message.text(), r.messages[i].text()) {
					return fmt.Errorf("message %s was %q", f.Message.ID, r.messages[i].text())
				}
				r.messages[i] = f.Message
			}
		}
	case "cf_agent_use_chat_response":
		if err := r.handleResponse(f); err != nil || !f.Done || f.Replay || f.Outcome == "aborted" {
			return err
		}
		return r.isStored(ctx, r.views[f.ID])
	}
	return nil
}

// isStored checks that the transcript has the text of a view, through any failures.
func (r *reader) isStored(ctx context.Context, v *view) error {
	if v == nil || v.text == "" || v.message == "" {
		return nil
	}
	for {
		list, err := r.fetch(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			time.Sleep(time.Second) // the incarnation was ended
			continue
		}
		for _, m := range list {
			if m.ID == v.message && r.extends(v.text, m.text()) {
				return nil
			}
		}
		return fmt.Errorf("%q has ended, and is not in the transcript", v.text)
	}
}

// fetch returns the transcript from get-messages.
func (r *reader) fetch(ctx context.Context) (list []page, err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = http.ErrAbortHandler
		} else if p != nil {
			panic(p)
		}
	}()
	w := httptest.NewRecorder()
	r.h.Host().ServeObject(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/get-messages", nil), r.id)
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("get-messages: %d", w.Code)
	}
	return list, json.Unmarshal(w.Body.Bytes(), &list)
}

func (r *reader) handleResponse(f frame) error {
	v, known := r.views[f.ID]
	switch {
	case f.ReplayComplete:
		if r.replaced == nil {
			r.replaced = &view{mayRestart: r.mayRestart}
		}
		if known && r.replaced.from > v.from {
			r.replaced.restarts = v.restarts + 1
			if err := r.replaced.wantResults(v.results()); err != nil {
				return err
			}
		} else if known && (r.replaced.from < v.from || !strings.HasPrefix(r.replaced.text, v.text)) {
			return fmt.Errorf("a replay has %q, the client received %q", r.replaced.text, v.text)
		}
		if known && v.message != "" && r.replaced.message != v.message {
			return errors.New("a replay is of another message")
		}
		r.views[f.ID], r.replaced = r.replaced, nil
	case f.Done:
		r.ended[f.ID], r.replaced = f, nil
		if known {
			return v.wantResults(v.keptCalls)
		}
		return nil
	case f.Replay:
		if r.replaced == nil {
			r.replaced = &view{mayRestart: r.mayRestart}
		}
		return r.replaced.add(f)
	default:
		if r.ended[f.ID].Done && !r.ended[f.ID].Replay {
			return errors.New("frames after the end of the reply")
		}
		if !known {
			v = &view{mayRestart: r.mayRestart}
			r.views[f.ID] = v
			r.order = append(r.order, f.ID)
		}
		return v.add(f)
	}
	return nil
}

// extends reports whether other extends text, or text has disappeared and a later call said other.
func (r *reader) extends(text, other string) bool {
	if strings.HasPrefix(other, text) {
		return true
	}
	return r.mayRestart && (other == "" || callOf(other) > callOf(text[strings.LastIndex(strings.TrimSpace(text), " ")+1:]))
}

// callOf returns the handler call that said the first word of a text.
func callOf(text string) (call int) {
	_, _ = fmt.Sscanf(text, "%d.", &call) // 0 if the text has no word
	return call
}

// restart restarts the view with the log: the text has disappeared.
func (v *view) restart(from uint64) {
	v.keptCalls = v.results()
	if v.next > 0 {
		v.restarts++
	}
	v.from, v.next, v.text, v.tools = from, from, "", nil
}

// results returns the calls that have a result.
func (v *view) results() (calls []string) {
	for id, state := range v.tools {
		if strings.HasPrefix(state, "output") {
			calls = append(calls, id)
		}
	}
	return calls
}

// wantResults returns an error if one of some calls has lost its result.
func (v *view) wantResults(calls []string) error {
	for _, id := range calls {
		if !strings.HasPrefix(v.tools[id], "output") {
			return fmt.Errorf("tool call %s has lost its outcome", id)
		}
	}
	return nil
}

func (v *view) add(f frame) error {
	var c struct {
		Type, Delta, MessageID, ToolCallID string
	}
	if err := json.Unmarshal([]byte(f.Body), &c); err != nil {
		return err
	}
	if v.mayRestart && c.Type == "start" && *f.Seq > 0 && (f.Replay && v.next == 0 || !f.Replay && *f.Seq == v.next) {
		v.restart(*f.Seq)
	} else if !strings.HasPrefix(c.Type, "tool-") {
		if err := v.wantResults(v.keptCalls); err != nil {
			return err
		}
	}
	if f.Replay && f.Seq != nil && *f.Seq > v.next && strings.HasSuffix(c.Type, "-delta") && c.ToolCallID == "" {
		v.next = *f.Seq // one chunk in place of many
	}
	if f.Seq == nil || *f.Seq != v.next {
		return fmt.Errorf("a chunk has not the number %d", v.next)
	}
	v.next++
	switch c.Type {
	case "start":
		if *f.Seq != v.from {
			return errors.New("it starts again")
		}
		v.message = c.MessageID
	case "text-delta":
		v.text += c.Delta
	}
	states := map[string]string{
		"tool-input-available": "input-available", "tool-approval-request": "approval-requested",
		"tool-output-available": "output-available", "tool-output-error": "output-error", "tool-input-error": "output-error",
	}
	state, ok := states[c.Type]
	if !ok {
		return nil
	}
	if strings.HasPrefix(v.tools[c.ToolCallID], "output") {
		return fmt.Errorf("tool call %s changes after its result", c.ToolCallID)
	}
	if v.tools == nil {
		v.tools = map[string]string{}
	}
	v.tools[c.ToolCallID] = state
	if strings.HasPrefix(state, "output") {
		v.outputs = append(v.outputs, c.ToolCallID)
	}
	return nil
}

// until reads until a condition holds, and reconnects when the connection ends. It calls lost, if not nil, after each
// reconnect.
func (r *reader) until(ctx context.Context, holds func() bool, lost func()) error {
	for !holds() {
		if r.ws == nil {
			if err := r.connect(ctx); err != nil {
				return err
			}
			if lost != nil {
				lost()
			}
		}
		if _, _, err := r.receive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close closes the connection.
func (r *reader) close() {
	if r.ws != nil {
		_ = r.ws.Close(websocket.StatusNormalClosure, "") // the host may have closed it first
		r.ws = nil
	}
}
