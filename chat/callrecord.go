package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
)

// callRecord is the server's record of a call without a result. It is stored with the message of the call, and no
// frame of a client changes it.
type callRecord struct {
	ID     string
	Server bool   // the server runs the call: a client can only approve or refuse it
	Sum    []byte // see sumOf, of the call as a reply made it; nil if the program stored the call with [SetMessages]
}

// sumOf identifies the tool and the input of a call.
func sumOf(p Part) []byte {
	input, err := encode(orNull(p.Member("input")))
	if err != nil {
		return nil // the message of the call cannot be stored either
	}
	h := sha256.New()
	for _, b := range [][]byte{[]byte(toolName(p)), {0}, input} {
		h.Write(b) //nolint:errcheck // never fails
	}
	return h.Sum(nil)
}

// isPendingCall reports whether a part is a call without a result that the server or a client has to supply.
func isPendingCall(p Part) bool { return isTool(p) && !hasResult(p) && !p.is("providerExecuted") }

// recordCalls returns the records of a message's calls that wait. A call that had a record keeps it; made has the
// calls that the message's reply made, by id, and whether the server runs them.
func recordCalls(m *Message, old []callRecord, made map[string]bool) (records []callRecord) {
	had := map[string]callRecord{}
	for _, r := range old {
		had[r.ID] = r
	}
	seen := map[string]bool{}
	for _, p := range m.Parts {
		id := p.Text("toolCallId")
		if !isPendingCall(p) || seen[id] {
			continue
		}
		seen[id] = true
		r, ok := had[id]
		if !ok {
			r = callRecord{ID: id}
			if r.Server, ok = made[id]; ok {
				r.Sum = sumOf(p)
			}
		}
		records = append(records, r)
	}
	return records
}

// record returns the record of a call, if it has one.
func (r *messageRow) record(call string) (callRecord, bool) {
	for _, c := range r.Calls {
		if c.ID == call {
			return c, true
		}
	}
	return callRecord{}, false
}

// madeByReply reports whether a reply of this conversation made a call, with the tool and the input that the call has
// now. Only such calls run.
func (l *liveReply) madeByReply(p Part) bool {
	id := p.Text("toolCallId")
	if r, older := l.olderCalls[id]; older {
		return r.Sum != nil && bytes.Equal(r.Sum, sumOf(p))
	}
	return l.acc.streamedCalls[id]
}

// serverRuns reports whether the server runs a call of the reply, as Answer decided when the model made the call.
func (l *liveReply) serverRuns(id string) bool {
	return l.olderCalls[id].Server || slices.Contains(l.row.Server, id)
}

// clientRuns reports whether a client runs a call of the reply.
func (l *liveReply) clientRuns(p Part) bool {
	return !l.serverRuns(p.Text("toolCallId")) && (slices.Contains(l.row.Clients, toolName(p)) || l.tools[toolName(p)])
}

// madeCalls returns the calls that the reply made itself, and whether the server runs them.
func (l *liveReply) madeCalls() map[string]bool {
	made := map[string]bool{}
	for id := range l.acc.streamedCalls {
		made[id] = false
	}
	for _, id := range l.row.Server {
		made[id] = true
	}
	return made
}

// errNoCallRecord is the result of a call that the program stored, or changed, with [SetMessages].
var errNoCallRecord = errors.New("the server has no record that the model made this call with this input")

// sendToClient sends clients an approved call that a client runs. The call then waits for its result.
func (a *answerRun) sendToClient(ctx context.Context, t Tool, p Part) error {
	l := a.r.l
	if err := l.updateRow(ctx, func(row *replyRow) { row.Clients = with(row.Clients, t.Name) }); err != nil {
		return err
	}
	c := callChunk(p)
	return l.addAll(ctx, append(l.merger.before(c), c))
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
