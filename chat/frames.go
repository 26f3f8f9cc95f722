package chat

import (
	"context"
	"errors"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
)

// The types of the frames of the wire protocol.
const (
	frameRequest      = "cf_agent_use_chat_request"
	frameResponse     = "cf_agent_use_chat_response"
	frameCancel       = "cf_agent_chat_request_cancel"
	frameClear        = "cf_agent_chat_clear"
	frameMessages     = "cf_agent_chat_messages"
	frameUpdated      = "cf_agent_message_updated"
	frameResume       = "cf_agent_stream_resume_request"
	frameResumeAck    = "cf_agent_stream_resume_ack"
	frameResuming     = "cf_agent_stream_resuming"
	framePending      = "cf_agent_stream_pending"
	frameNone         = "cf_agent_stream_resume_none"
	frameRecovering   = "cf_agent_chat_recovering"
	frameToolResult   = "cf_agent_tool_result"
	frameToolApproval = "cf_agent_tool_approval"
)

// clientFrames are the types of frames from clients.
var clientFrames = []string{
	frameRequest, frameCancel, frameClear, frameMessages, frameToolResult, frameToolApproval, frameResume, frameResumeAck,
}

// responseFrame is a chunk of a reply, or its end.
type responseFrame struct {
	Type           string   `json:"type"`
	ID             string   `json:"id"`
	Body           string   `json:"body"`
	Done           bool     `json:"done"`
	Error          bool     `json:"error,omitempty"`
	Continuation   bool     `json:"continuation,omitempty"`
	Replay         bool     `json:"replay,omitempty"`
	ReplayComplete bool     `json:"replayComplete,omitempty"`
	Seq            *uint64  `json:"seq,omitempty"`
	Outcome        Status   `json:"outcome,omitempty"`
	MessageIDs     []string `json:"messageIds,omitempty"`
}

type updatedFrame struct {
	Type    string  `json:"type"`
	Message Message `json:"message"`
}

// streamFrame reports the state of a request's stream.
type streamFrame struct {
	Type    string `json:"type"`
	ID      string `json:"id,omitempty"`
	Reason  string `json:"reason,omitempty"`
	ProbeID string `json:"probeId,omitempty"`

	ended bool // and does not resume
}

type recoveringFrame struct {
	Type       string `json:"type"`
	Recovering bool   `json:"recovering"`
	ID         string `json:"id,omitempty"`
}

func frameOf(v any) (dohost.Frame, error) {
	data, err := rawjson.Encode(v)
	return dohost.Frame{Text: true, Data: data}, err
}

// clientList sends frames to the connected clients of a conversation, and lets them resume the running reply.
type clientList struct {
	*shared
	conv     *conversation
	messages *storedMessages

	// Owned by the goroutine that has the turn.
	clearing *agent.Conn // the client that is clearing the conversation; sendEnd sends it no transcript; may be nil
	audience audience[*agent.Conn]
}

// send sends a frame to one connection, and ignores that the connection may be closed.
func (k *clientList) send(ctx context.Context, conn *agent.Conn, v any) error {
	f, err := frameOf(v)
	if err != nil {
		return err
	}
	return k.sendFrame(ctx, conn, f)
}

func (k *clientList) sendFrame(ctx context.Context, conn *agent.Conn, f dohost.Frame) error {
	if err := conn.Send(ctx, f); err != nil && !errors.Is(err, dohost.ErrClosed) {
		return err
	}
	return nil
}

// broadcast sends a frame to some connections.
func (k *clientList) broadcast(ctx context.Context, v any, to []*agent.Conn) error {
	if len(to) == 0 {
		return nil
	}
	f, err := frameOf(v)
	if err != nil {
		return err
	}
	return k.base.BroadcastTo(ctx, f, to)
}

// openConns returns the open connections that speak the protocol, except some.
func (k *clientList) openConns(except ...*agent.Conn) (open []*agent.Conn) {
	for conn := range k.base.Connections("") {
		if conn.Protocol() && !slices.ContainsFunc(except, conn.Is) {
			open = append(open, conn)
		}
	}
	return open
}

// liveConns returns the open connections that receive a new chunk of the running reply.
func (k *clientList) liveConns() []*agent.Conn { return k.audience.live(k.openConns()) }

// transcriptFrame returns the conversation as a frame. With connect, clients keep their unsent messages.
func (k *clientList) transcriptFrame(ctx context.Context, connect bool) (dohost.Frame, error) {
	after := "}"
	if connect {
		after = `,"connect":true}`
	}
	data, err := k.messages.messagesJSON(ctx, `{"type":"`+frameMessages+`","messages":`, after)
	return dohost.Frame{Text: true, Data: data}, err
}

// sendTranscriptTo sends the conversation to one connection.
func (k *clientList) sendTranscriptTo(ctx context.Context, conn *agent.Conn, connect bool) error {
	f, err := k.transcriptFrame(ctx, connect)
	if err != nil {
		return err
	}
	return k.sendFrame(ctx, conn, f)
}

// broadcastTranscript sends the conversation to some connections.
func (k *clientList) broadcastTranscript(ctx context.Context, to []*agent.Conn) error {
	if len(to) == 0 {
		return nil
	}
	f, err := k.transcriptFrame(ctx, false)
	if err != nil {
		return err
	}
	return k.base.BroadcastTo(ctx, f, to)
}
