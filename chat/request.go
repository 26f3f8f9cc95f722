package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// requestFrame is a client's request.
type requestFrame struct {
	ID   string `json:"id"`
	Init struct {
		Method string `json:"method"`
		Body   string `json:"body"`
	} `json:"init"`
}

// request is the body of a requestFrame.
type request struct {
	messages []Message
	trigger  string
	tools    json.RawMessage // nil if the client has none
	more     json.RawMessage // the members that are not of the wire protocol; nil if there are none
}

// The triggers of requests. A request without one is a submission.
const (
	triggerSubmit     = "submit-message"
	triggerRegenerate = "regenerate-message"
)

func parseRequest(f requestFrame) (r request, err error) {
	if err := uimessage.CheckID("a request", f.ID); err != nil {
		return r, err
	}
	if f.Init.Method != http.MethodPost || f.Init.Body == "" {
		return r, fmt.Errorf("chat: a request needs an id, the method POST, and a body")
	}
	if err := checkFrame([]byte(f.Init.Body)); err != nil {
		return r, fmt.Errorf("chat: request %q: %w", f.ID, err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(f.Init.Body), &all); err != nil {
		return r, fmt.Errorf("chat: request %q: %w", f.ID, err)
	}
	if raw, ok := all["messages"]; ok {
		if r.messages, err = uimessage.ParseList(raw); err != nil {
			return r, fmt.Errorf("chat: messages of request %q: %w", f.ID, err)
		}
	}
	if raw, ok := all["trigger"]; ok {
		if err := json.Unmarshal(raw, &r.trigger); err != nil {
			return r, fmt.Errorf("chat: trigger of request %q: %w", f.ID, err)
		}
	}
	delete(all, "messages")
	delete(all, "trigger")
	if tools, ok := all["clientTools"]; ok && string(tools) != "null" && string(tools) != "[]" {
		var list []json.RawMessage
		if err := json.Unmarshal(tools, &list); err != nil {
			return r, fmt.Errorf("chat: clientTools of request %q: %w", f.ID, err)
		}
		r.tools = tools
	}
	delete(all, "clientTools")
	switch r.trigger {
	case "":
		r.trigger = triggerSubmit
	case triggerSubmit, triggerRegenerate:
	default:
		return r, fmt.Errorf("chat: request %q: the trigger is neither %s nor %s", f.ID, triggerSubmit, triggerRegenerate)
	}
	if len(all) > 0 {
		r.more, err = rawjson.Encode(all)
	}
	return r, err
}

// usersAtEnd returns the ids of the user's messages at the end of a list.
func usersAtEnd(list []Message) (ids []string) {
	for _, m := range slices.Backward(list) {
		if m.Role != RoleUser {
			break
		}
		ids = append(ids, m.ID)
	}
	slices.Reverse(ids)
	return ids
}

// clientTools returns the names of the tools that the client of a request has.
func (r *replyRow) clientTools() map[string]bool {
	var tools []struct {
		Name string `json:"name"`
	}
	if r.Tools == nil || json.Unmarshal(r.Tools, &tools) != nil {
		return nil
	}
	names := map[string]bool{}
	for _, t := range tools {
		names[t.Name] = true
	}
	return names
}

// receive handles the frames of the chat protocol.
func (k *conversation) receive(ctx context.Context, conn *agent.Conn, f dohost.Frame) (handled bool, err error) {
	var head struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		ProbeID string `json:"probeId"`
	}
	if !f.Text || json.Unmarshal(f.Data, &head) != nil || !slices.Contains(clientFrames, head.Type) {
		return false, nil
	}
	if conn.Readonly() && changingFrames[head.Type] {
		return true, k.refuseChange(ctx, conn, head.Type, head.ID)
	}
	if err := checkFrame(f.Data); err != nil {
		id := strings.ToValidUTF8(head.ID[:min(len(head.ID), uimessage.MaxID)], "")
		k.object().Report(ctx, "chat:refused", slog.String("request", id), slog.Any("err", err))
		return true, k.calls.sendRefusal(ctx, conn, err)
	}
	if decidingFrames[head.Type] {
		if err := k.calls.expireOverdue(ctx); err != nil {
			return true, k.refuseOverdue(ctx, conn, head.Type, head.ID, err)
		}
	}
	ctx = withActor(ctx, actorOf(conn))
	switch head.Type {
	case frameRequest:
		var r requestFrame
		err := json.Unmarshal(f.Data, &r)
		if err == nil {
			err = k.handleRequest(ctx, conn, r)
		}
		if err != nil && ctx.Err() == nil {
			return true, k.failRequest(ctx, conn, head.ID, k.errorText(err))
		}
		return true, err
	case frameCancel:
		_, err := k.cancel(ctx, head.ID)
		return true, err
	case frameClear:
		return true, k.clear(ctx, conn)
	case frameMessages:
		return true, k.setMessages(ctx, conn, f.Data)
	case frameToolResult, frameToolApproval:
		return true, k.calls.toolAnswered(ctx, conn, f.Data)
	case frameResume:
		return true, k.clients.probe(ctx, conn, head.ProbeID)
	case frameResumeAck:
		return true, k.clients.resumeClient(ctx, conn, head.ID)
	}
	return false, nil
}

// changingFrames are the frames that change the conversation.
var changingFrames = map[string]bool{
	frameRequest: true, frameCancel: true, frameClear: true, frameMessages: true, frameToolResult: true, frameToolApproval: true,
}

// decidingFrames are the frames that may have a decision about a call.
var decidingFrames = map[string]bool{
	frameRequest: true, frameMessages: true, frameToolResult: true, frameToolApproval: true,
}

// readonlyText is the text of the Agents SDK for clients with read-only rights.
const readonlyText = "Connection is readonly"

// refuseChange answers a frame of a read-only client. A request gets an error. Clients apply other changes before they
// send them, so they get the stored conversation.
func (k *conversation) refuseChange(ctx context.Context, conn *agent.Conn, frame, id string) error {
	switch frame {
	case frameRequest:
		return k.failRequest(ctx, conn, id, readonlyText)
	case frameCancel:
		return nil
	}
	return k.clients.sendTranscriptTo(ctx, conn, false)
}

// refuseOverdue answers a frame before which a call should have expired, which has failed with err.
func (k *conversation) refuseOverdue(ctx context.Context, conn *agent.Conn, frame, id string, err error) error {
	switch {
	case !noSpace(err):
		return err
	case frame == frameRequest:
		return k.failRequest(ctx, conn, id, k.errorText(err))
	}
	return k.calls.sendRefusal(ctx, conn, fmt.Errorf("chat: the frame %s is not stored: %w", frame, err))
}

// failRequest answers a request that is not accepted.
func (k *conversation) failRequest(ctx context.Context, conn *agent.Conn, id, text string) error {
	return k.clients.send(ctx, conn, responseFrame{Type: frameResponse, ID: id, Body: text, Done: true, Error: true, Outcome: StatusFailed})
}

// handleRequest accepts a request.
func (k *conversation) handleRequest(ctx context.Context, conn *agent.Conn, f requestFrame) error {
	r, err := parseRequest(f)
	if err != nil {
		return &dohost.PublicError{Message: err.Error(), Code: "bad_request", Status: http.StatusBadRequest}
	}
	before, known, err := replies.Get(ctx, k.store(), f.ID)
	if err != nil {
		return err
	}
	if known { // its client was not sure that the request arrived
		if !before.Value.Open() {
			return k.clients.send(ctx, conn, before.Value.endFrame())
		}
		return nil
	}
	if n, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"}); err != nil || n >= maxOpenRequests {
		return cmp.Or(err, error(&dohost.PublicError{Message: fmt.Sprintf("chat: %d requests are open, the limit is %d", n, maxOpenRequests)}))
	}
	row := replyRow{
		ID: f.ID, Conn: conn.ID(), Body: r.more, Tools: r.tools,
		Created: time.Now().UnixMilli(),
	}
	row.Submits = r.trigger == triggerSubmit
	row.Continues = row.Submits && len(r.messages) > 0 && r.messages[len(r.messages)-1].Role == RoleAssistant
	dropped, changed, merged, err := k.submit(ctx, &row, r.messages)
	if err != nil {
		return err
	}
	if dropped {
		if err := k.clients.sendTranscriptTo(ctx, conn, false); err != nil {
			return err
		}
		row.State, row.Outcome = work.Ended, work.Skipped
		return k.clients.send(ctx, conn, row.endFrame())
	}
	k.clients.audience.requested(row.ID, conn)
	switch {
	case merged: // its client has the separate messages, and would send them again
		return k.clients.broadcastTranscript(ctx, k.clients.openConns())
	case !changed:
		return nil
	}
	return k.clients.broadcastTranscript(ctx, k.clients.openConns(conn))
}

// serve answers HTTP requests for the transcript.
func (k *conversation) serve(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/get-messages") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if err := k.messages.writeTranscript(r.Context(), w); err != nil {
		k.object().Report(r.Context(), "chat:failed", slog.String("frame", "get-messages"), slog.Any("err", err))
		panic(http.ErrAbortHandler) // earlier windows may be on the wire already
	}
	return true
}
