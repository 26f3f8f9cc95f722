package chat

import (
	"context"
	"encoding/json"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// streamStatus is the state of a conversation as far as a connecting client needs it.
type streamStatus struct {
	running   string // id of the running request
	continues bool   // that one continues an older message
	owner     string // id of the connection that sent it
	ownerOpen bool   // that connection is open
	next      string // id of the next queued request
	failed    string // id of the latest request begun, if it has failed
}

// frame returns the frame for a client that asks for a reply to resume. Every probe gets an answer: the client's
// status depends on it.
func (s streamStatus) frame(conn, probe string) streamFrame {
	switch {
	case s.running != "" && s.continues && s.ownerOpen && s.owner != conn:
		return streamFrame{Type: frameNone, Reason: "continuation-owned", ProbeID: probe}
	case s.running != "":
		return streamFrame{Type: frameResuming, ID: s.running, ProbeID: probe}
	case s.next != "":
		return streamFrame{Type: framePending, ID: s.next, ProbeID: probe}
	case s.failed != "":
		return streamFrame{Type: frameResuming, ID: s.failed, ProbeID: probe, ended: true}
	}
	return streamFrame{Type: frameNone, Reason: "idle", ProbeID: probe}
}

func (k *clientList) streamStatus(ctx context.Context) (s streamStatus, err error) {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Limit: 1})
	if err != nil {
		return s, err
	}
	if len(open) > 0 {
		switch row := open[0].Value; {
		case row.running():
			s.running, s.continues, s.owner = row.ID, row.Continues, row.Conn
			if row.Conn != "" { // "" would select all connections
				for range k.base.Connections(row.Conn) {
					s.ownerOpen = true
				}
			}
		default:
			s.next = row.ID
		}
		return s, nil
	}
	n, err := k.readNote(ctx, terminalNote)
	s.failed = n.Reply
	return s, err
}

// connect notifies a new connection of the running or queued request.
func (k *clientList) connect(ctx context.Context, conn *agent.Conn) error {
	if !conn.Protocol() {
		return nil
	}
	k.audience.connected(conn)
	s, err := k.streamStatus(ctx)
	if err != nil || s.running == "" && s.next == "" {
		return err
	}
	return k.sendStatus(ctx, conn, s.frame(conn.ID(), ""))
}

// probe answers a client that asks for a reply to resume.
func (k *clientList) probe(ctx context.Context, conn *agent.Conn, id string) error {
	s, err := k.streamStatus(ctx)
	if err != nil {
		return err
	}
	first := k.audience.probed(conn)
	f := s.frame(conn.ID(), id)
	if first && (f.Reason == "idle" || f.ended) {
		if err := k.sendMissedTranscript(ctx, conn); err != nil {
			return err
		}
	}
	return k.sendStatus(ctx, conn, f)
}

// sendMissedTranscript sends a new connection the transcript if a request has ended recently: the client may have
// received the beginning of its reply on a previous connection. It does so after a failed reply, too, because the replay
// of a failed reply has only the error.
func (k *clientList) sendMissedTranscript(ctx context.Context, conn *agent.Conn) error {
	last, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "ended", Reverse: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	return k.sendTranscriptTo(ctx, conn, true)
}

// sendStatus sends a client the state of a request's stream.
func (k *clientList) sendStatus(ctx context.Context, conn *agent.Conn, f streamFrame) error {
	if err := k.send(ctx, conn, f); err != nil {
		return err
	}
	if l := k.conv.live; k.audience.sent(conn, f) && l != nil && l.recovering {
		return k.send(ctx, conn, recoveringFrame{frameRecovering, true, l.row.ID})
	}
	return nil
}

// notifyReplyBegins notifies waiting connections that a reply begins, and all connections that a reply resumes.
func (k *clientList) notifyReplyBegins(ctx context.Context, l *liveReply) error {
	for _, conn := range k.audience.waitOver() {
		if err := k.sendStatus(ctx, conn, streamFrame{Type: frameResuming, ID: l.row.ID}); err != nil {
			return err
		}
	}
	if l.recovering {
		return k.broadcast(ctx, recoveringFrame{frameRecovering, true, l.row.ID}, k.openConns())
	}
	return nil
}

// notifyWaiting sends the new state to connections that wait for a reply, if that ended before it began.
func (k *clientList) notifyWaiting(ctx context.Context) error {
	waiting := k.audience.waitOver()
	if len(waiting) == 0 {
		return nil
	}
	s, err := k.streamStatus(ctx)
	for _, conn := range waiting {
		if err == nil {
			err = k.sendStatus(ctx, conn, s.frame(conn.ID(), ""))
		}
	}
	return err
}

// resumeClient replays a reply to a client. The client receives later chunks live. During a reply, the conversation
// ignores a client that asks for another one: that has ended since it was offered, all connections received its end, and
// hooks of 0.21 take a second end for the end of the running reply.
func (k *clientList) resumeClient(ctx context.Context, conn *agent.Conn, id string) error {
	row, ok, err := replies.Get(ctx, k.store(), id)
	live := k.conv.live
	switch {
	case err != nil:
		return err
	case live != nil && live.row.ID != id:
		return nil
	case !ok:
		n, err := k.readNote(ctx, terminalNote)
		if err != nil {
			return err
		}
		f := responseFrame{Type: frameResponse, ID: id, Done: true, Replay: true}
		if n.Reply == id && id != "" {
			f.Error, f.Body, f.Outcome = true, n.Text, StatusFailed
		}
		return k.send(ctx, conn, f)
	case row.Value.State == work.Waiting:
		return nil
	}
	r := &row.Value
	if !r.Open() {
		end := r.endFrame()
		end.Replay = true
		return k.send(ctx, conn, end)
	}
	if !k.audience.resumes(conn) {
		return nil
	}
	if !r.Older {
		if err := k.replay(ctx, conn, r); err != nil {
			return err
		}
	}
	return k.send(ctx, conn, responseFrame{
		Type: frameResponse, ID: id, Continuation: r.Continues, Replay: true, ReplayComplete: true,
	})
}

// replay sends a client the reply so far. It merges the deltas of one text or reasoning into one chunk with the number
// of the last: fewer updates for clients that start from nothing. A reply that continues an older message is replayed
// chunk by chunk, since clients skip chunks by their numbers.
func (k *clientList) replay(ctx context.Context, conn *agent.Conn, r *replyRow) error {
	var last chunkRow
	var deltas uimessage.Deltas // from last on
	joins := false
	flush := func() error {
		if last.JSON == nil {
			return nil
		}
		if joins {
			last.JSON = deltas.JSON()
		}
		return k.send(ctx, conn, r.frame(last, true))
	}
	err := k.conv.eachChunk(ctx, r, func(row chunkRow) error {
		var c Chunk
		if err := json.Unmarshal(row.JSON, &c); err != nil {
			return err
		}
		if joins && deltas.Join(c) {
			last.Seq = row.Seq
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		last, joins = row, !r.Continues && deltas.Begin(c)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
