package chat

import (
	"context"
	"errors"
	"slices"

	"github.com/dohost/dohost/chat/uimessage"
)

// madeByReply reports whether a reply of this conversation made a call, with the tool and the input that the call has
// now. Only such calls run.
func (l *liveReply) madeByReply(p Part) bool {
	id := p.Text("toolCallId")
	if r, older := l.olderCalls[id]; older {
		return r.Made(p)
	}
	return l.stream.MadeCall(id)
}

// serverRuns reports whether the server runs a call of the reply, as Answer decided when the model made the call.
func (l *liveReply) serverRuns(id string) bool {
	return l.olderCalls[id].Server || slices.Contains(l.row.Server, id)
}

// clientRuns reports whether a client runs a call of the reply.
func (l *liveReply) clientRuns(p Part) bool {
	return !l.serverRuns(p.Text("toolCallId")) && (slices.Contains(l.row.Clients, uimessage.ToolName(p)) || l.tools[uimessage.ToolName(p)])
}

// errNoCallRecord is the result of a call that the program stored, or changed, with [SetMessages].
var errNoCallRecord = errors.New("the server has no record that the model made this call with this input")

// sendToClient sends clients an approved call that a client runs. The call then waits for its result.
func (a *answerRun) sendToClient(ctx context.Context, t Tool, p Part) error {
	l := a.r.l
	if err := l.updateRow(ctx, func(row *replyRow) { row.Clients = with(row.Clients, t.Name) }); err != nil {
		return err
	}
	c := uimessage.CallChunk(p)
	return l.addAll(ctx, append(l.stream.Before(c), c))
}

// recordUnstartedCall records that a call has not begun to run, and whether the server or a client runs it. So the host
// knows that a reply interrupted afterwards waits for the client, and no client can answer a call that the server runs.
func (a *answerRun) recordUnstartedCall(ctx context.Context, c Chunk) error {
	if c.Type() != "tool-input-start" && c.Type() != "tool-input-available" {
		return nil
	}
	row, id := &a.r.l.row, c.Text("toolCallId")
	unstarted, clients, server := with(row.AnswerCalls, id), row.Clients, row.Server
	switch t, ours := a.tool(c.Text("toolName")); {
	case ours && t.Run != nil:
		server = with(server, id)
	case ours && c.Type() == "tool-input-available":
		clients = with(clients, t.Name)
	}
	if len(unstarted) == len(row.AnswerCalls) && len(clients) == len(row.Clients) && len(server) == len(row.Server) {
		return nil
	}
	return a.r.l.updateRow(ctx, func(row *replyRow) { row.AnswerCalls, row.Clients, row.Server = unstarted, clients, server })
}
