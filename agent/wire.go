package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/dohost/dohost"
)

// The types of the frames of the wire.
const (
	frameIdentity   = "cf_agent_identity"
	frameState      = "cf_agent_state"
	frameStateError = "cf_agent_state_error"
	frameServers    = "cf_agent_mcp_servers"
	frameRPC        = "rpc"
)

type identity struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Agent string `json:"agent"`
	// StateFollows makes clients since 0.32 wait for the state before they report ready.
	StateFollows bool `json:"stateFollows,omitempty"`
}

type stateFrame struct {
	Type  string          `json:"type"`
	State json.RawMessage `json:"state"`
}

type stateError struct {
	Type  string `json:"type"`
	Error string `json:"error"`
}

type errorFrame struct {
	Error string `json:"error"`
}

// rpcCall is a client's call.
type rpcCall struct {
	ID     *string         `json:"id"`
	Method *string         `json:"method"`
	Args   json.RawMessage `json:"args"`
}

// maxCallID bounds the id of a call, in bytes: each chunk of a streaming method repeats it.
const maxCallID = 512

// valid reports whether the frame is a call: it has all members, args is an array, and id and method are within their bounds.
func (r rpcCall) valid() bool {
	return r.ID != nil && len(*r.ID) <= maxCallID &&
		r.Method != nil && len(*r.Method) <= maxName && bytes.HasPrefix(r.Args, []byte("["))
}

type rpcAnswer struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Success bool            `json:"success"`
	Done    *bool           `json:"done,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// servers is the frame that lists MCP servers. The list is empty.
var servers = json.RawMessage(`{"type":"cf_agent_mcp_servers","mcp":{"servers":{},"tools":[],"prompts":[],"resources":[]}}`)

// send sends a frame of the wire.
func (c *Conn) send(ctx context.Context, v any) error {
	data, err := marshal(v)
	if err != nil {
		return err
	}
	return c.Send(ctx, dohost.Frame{Text: true, Data: data})
}

// sendInitialFrames sends the first frames to a client: the agent's identity, its state, its servers.
func (cs *clients) sendInitialFrames(ctx context.Context, conn *Conn) error {
	state, err := cs.rawState(ctx)
	if err != nil {
		return err
	}
	frames := []any{identity{frameIdentity, cs.name(), cs.class.name, state != nil}}
	if state != nil {
		frames = append(frames, stateFrame{frameState, state})
	}
	for _, f := range append(frames, servers) {
		if err := conn.send(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// receive handles a client's frame.
func (cs *clients) receive(ctx context.Context, conn *Conn, f dohost.Frame) error {
	if conn.flags()&refused != 0 {
		return nil
	}
	ctx = withConn(ctx, conn)
	var head struct {
		Type string `json:"type"`
	}
	if f.Text && json.Unmarshal(f.Data, &head) == nil {
		switch head.Type {
		case frameState:
			var s struct {
				State json.RawMessage `json:"state"`
			}
			if json.Unmarshal(f.Data, &s) == nil && s.State != nil {
				return cs.clientState(ctx, conn, s.State)
			}
		case frameRPC:
			var call rpcCall
			if json.Unmarshal(f.Data, &call) == nil && call.valid() {
				return cs.answer(ctx, conn, call)
			}
		}
	}
	if handled, err := cs.extendedMessage(ctx, conn, f); handled || err != nil {
		return err
	}
	if cs.class.message == nil {
		return nil
	}
	return cs.class.message(cs.self, ctx, conn, f)
}

// answer runs a client's call and sends the result. If the client has disconnected, it sends nothing.
func (cs *clients) answer(ctx context.Context, conn *Conn, call rpcCall) error {
	done := true
	reply := rpcAnswer{Type: frameRPC, ID: *call.ID}
	value, err := cs.call(ctx, conn, call)
	if err != nil {
		reply.Error = cs.errorText(*call.Method, err)
	} else {
		reply.Success, reply.Done, reply.Result = true, &done, value
	}
	if gone := conn.send(ctx, reply); gone != nil && !errors.Is(gone, dohost.ErrClosed) {
		return errors.Join(err, gone)
	}
	return err
}

func (cs *clients) call(ctx context.Context, conn *Conn, call rpcCall) (json.RawMessage, error) {
	m, err := cs.class.method(*call.Method)
	if err != nil {
		return nil, err
	}
	s := &Stream{conn: conn, id: *call.ID}
	defer func() { s.ended = true }()
	return m(cs.self, ctx, call.Args, s)
}
