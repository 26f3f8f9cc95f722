package chat

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// standing is what a conversation is doing, as far as a client that comes to it wants to know.
type standing struct {
	running   string // id of the request that is being answered
	continues bool   // that goes on in an older message
	owner     string // id of the connection that has asked for it
	owned     bool   // which is there
	next      string // id of one that waits
	failed    string // id of the last one that has begun, if it has failed
}

// answer is what a client is told that asks whether there is something to catch up with. Every one is
// answered: its status depends on it.
func (s standing) answer(conn, probe string) streamFrame {
	switch {
	case s.running != "" && s.continues && s.owned && s.owner != conn:
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

func (k *conversation) standing(ctx context.Context) (s standing, err error) {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Limit: 1})
	if err != nil {
		return s, err
	}
	if len(open) > 0 {
		switch row := open[0].Value; row.Status {
		case Running:
			s.running, s.continues, s.owner = row.ID, row.Continues, row.Conn
			if row.Conn != "" { // which would be all of them
				for range k.base.Connections(row.Conn) {
					s.owned = true
				}
			}
		default:
			s.next = row.ID
		}
		return s, nil
	}
	n, err := k.note(ctx, terminalNote)
	s.failed = n.Reply
	return s, err
}

// connect tells a new connection of what is being answered.
func (k *conversation) connect(ctx context.Context, conn *agent.Conn) error {
	if !conn.Protocol() {
		return nil
	}
	k.fresh = append(k.fresh, conn)
	s, err := k.standing(ctx)
	if err != nil || s.running == "" && s.next == "" {
		return err
	}
	return k.tellStanding(ctx, conn, s.answer(conn.ID(), ""))
}

// probe answers a client that asks whether there is something to catch up with.
func (k *conversation) probe(ctx context.Context, conn *agent.Conn, id string) error {
	s, err := k.standing(ctx)
	if err != nil {
		return err
	}
	fresh := slices.ContainsFunc(k.fresh, conn.Is)
	k.fresh = without(k.fresh, conn)
	a := s.answer(conn.ID(), id)
	if a.Reason == "idle" && fresh {
		if err := k.showMissed(ctx, conn); err != nil {
			return err
		}
	}
	return k.tellStanding(ctx, conn, a)
}

// showMissed shows the transcript to a connection that is new, if something has ended lately: its client
// may have seen the beginning of that, by a connection that was cut.
func (k *conversation) showMissed(ctx context.Context, conn *agent.Conn) error {
	last, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "ended", Reverse: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	return k.showTo(ctx, conn, true)
}

func (k *conversation) tellStanding(ctx context.Context, conn *agent.Conn, a streamFrame) error {
	if err := k.send(ctx, conn, a); err != nil {
		return err
	}
	switch {
	case a.ended: // what comes next is not what it asks for
	case a.Type == framePending:
		k.waiting = append(without(k.waiting, conn), conn)
	case a.Type == frameResuming:
		k.catching = append(without(k.catching, conn), conn)
		if k.live != nil && k.live.quiet {
			return k.send(ctx, conn, recoveringFrame{frameRecovering, true, k.live.row.ID})
		}
	}
	return nil
}

// announce tells those who wait for a reply that it begins, and all that one is gone on with.
func (k *conversation) announce(ctx context.Context, l *live) error {
	waiting := k.waiting
	k.waiting = nil
	for _, conn := range waiting {
		if err := k.tellStanding(ctx, conn, streamFrame{Type: frameResuming, ID: l.row.ID}); err != nil {
			return err
		}
	}
	if l.quiet {
		return k.tellAll(ctx, recoveringFrame{frameRecovering, true, l.row.ID}, nil)
	}
	return nil
}

// answerWaiting tells those who wait for a reply what has become of that, when it has ended before it began.
func (k *conversation) answerWaiting(ctx context.Context) error {
	waiting := k.waiting
	if k.waiting = nil; len(waiting) == 0 {
		return nil
	}
	s, err := k.standing(ctx)
	for _, conn := range waiting {
		if err == nil {
			err = k.tellStanding(ctx, conn, s.answer(conn.ID(), ""))
		}
	}
	return err
}

// catchUp shows a client what was said so far. What follows it sees as it comes.
func (k *conversation) catchUp(ctx context.Context, conn *agent.Conn, id string) error {
	row, ok, err := replies.Get(ctx, k.store(), id)
	switch {
	case err != nil:
		return err
	case !ok:
		n, err := k.note(ctx, terminalNote)
		if err != nil {
			return err
		}
		f := responseFrame{Type: frameResponse, ID: id, Done: true, Replay: true}
		if n.Reply == id && id != "" {
			f.Error, f.Body, f.Outcome = true, n.Text, Failed
		}
		return k.send(ctx, conn, f)
	case row.Value.Status == Queued:
		return nil
	}
	r := &row.Value
	if r.Status.final() {
		end := r.endFrame()
		end.Replay = true
		return k.send(ctx, conn, end)
	}
	if !k.isCatching(conn) {
		return nil // it was shown that: clients are told twice, when they come and when they ask
	}
	k.catching = without(k.catching, conn)
	k.caught = append(without(k.caught, conn), conn)
	if err := k.replay(ctx, conn, r); err != nil {
		return err
	}
	return k.send(ctx, conn, responseFrame{
		Type: frameResponse, ID: id, Continuation: r.Continues, Replay: true, ReplayComplete: true,
	})
}

// replay shows what was said of a reply. What one text or thought has said in many chunks is one there, by
// the number of the last: clients show what was said from nothing, so the fewer steps the better. Of a
// reply that goes on in an older message they skip chunks by their numbers, so it is shown chunk by chunk.
func (k *conversation) replay(ctx context.Context, conn *agent.Conn, r *replyRow) error {
	var last chunkRow
	var delta Chunk // that last is, if it is one
	var text strings.Builder
	flush := func() error {
		if last.JSON == nil {
			return nil
		}
		if delta.object != nil {
			last.JSON = mustEncode(delta.with("delta", text.String()))
		}
		return k.send(ctx, conn, r.frame(last, true))
	}
	err := k.eachChunk(ctx, r, func(row chunkRow) error {
		var c Chunk
		if err := json.Unmarshal(row.JSON, &c); err != nil {
			return err
		}
		grows := !r.Continues && (c.Type() == "text-delta" || c.Type() == "reasoning-delta") &&
			c.Member("providerMetadata") == nil // which the last one has
		if grows && delta.object != nil && delta.Type() == c.Type() && delta.Text("id") == c.Text("id") {
			text.WriteString(c.Text("delta"))
			last.Seq = row.Seq
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		last, delta = row, Chunk{}
		if grows {
			delta = c
			text.Reset()
			text.WriteString(c.Text("delta"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// gone forgets a connection.
func (k *conversation) gone(conn *agent.Conn) {
	for _, list := range []*[]*agent.Conn{&k.catching, &k.caught, &k.waiting, &k.fresh} {
		*list = without(*list, conn)
	}
}

func (k *conversation) isCatching(conn *agent.Conn) bool {
	return slices.ContainsFunc(k.catching, conn.Is)
}

func without(list []*agent.Conn, conn *agent.Conn) []*agent.Conn {
	return slices.DeleteFunc(list, conn.Is)
}
