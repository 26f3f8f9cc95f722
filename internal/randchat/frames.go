package randchat

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dohost/dohost/chat"
)

// receive handles a frame, with the lock held. It returns a frame to be sent.
func (c *client) receive(f frame) (reply map[string]any) {
	if d := c.wipes[f.ProbeID]; d != nil && d.done == 0 {
		d.done = c.w.tickLocked()
	}
	switch f.Type {
	case "cf_agent_stream_resuming":
		c.held = f.ID
		return map[string]any{"type": "cf_agent_stream_resume_ack", "id": f.ID}
	case "cf_agent_chat_messages":
		c.checkTranscript("the transcript", f.Messages)
		c.setList(f.Messages)
	case "cf_agent_stream_resume_none":
		c.owned = c.owned || f.Reason == "continuation-owned"
	case "cf_agent_message_updated":
		c.w.checkCallsLocked(&f.Message, c.name, true)
		if i := indexOf(c.list, f.Message.ID); i >= 0 {
			c.list[i] = f.Message
		} else {
			c.stale = true // the page makes the message from the chunks of its reply, which have no approval
		}
	case "cf_agent_chat_clear":
		c.setList(nil)
	case "cf_agent_use_chat_response":
		c.w.Compared()
		switch {
		case strings.HasPrefix(f.ID, viewerPrefix):
			c.refused(f)
		case f.ReplayComplete:
			c.replayEnds(f)
		case f.Done:
			c.replyEnds(f)
		default:
			c.chunk(f)
		}
	case "":
		if c.answering {
			break
		}
		c.w.Faultf("%s is refused: %v", c.name, f.Error)
	}
	return nil
}

// acknowledge records that a request is stored. The page depends on the frames of this client alone, since the order of
// the frames of several clients differs between the runs of a seed.
func (c *client) acknowledge(q *request) {
	c.known[q.id] = true
	c.w.acknowledgeLocked(q)
}

// setList replaces the page by a transcript. The messages of requests that may be lost stay.
func (c *client) setList(list []message) {
	c.list, c.stale = list, false
	for _, d := range c.wipes {
		c.stale = c.stale || d.done == 0 // the transcript may be older than the deletion by this client
	}
	for _, q := range c.w.requests {
		if q.client == c && q.acked == 0 && (len(c.w.deletions) > 0 || c.w.answered || c.w.policy == chat.PolicyDrop) {
			c.stale = true // its list may change the conversation, without a transcript for this client
		}
		switch {
		case q.replaces:
		case indexOf(list, q.user.ID) >= 0:
			other := func(o *request) bool { return o != q && indexOf(o.list, q.user.ID) >= 0 } // it may have brought the message
			if !slices.ContainsFunc(c.w.requests, other) {
				c.acknowledge(q)
			}
		case q.client != c || c.known[q.id] || q.dropped > 0 || q.sent < c.wiped:
		default:
			c.list = append(c.list, q.user)
		}
	}
}

// checkTranscript checks a transcript that a client gets: its texts are known, and those of replies only grow.
func (c *client) checkTranscript(source string, list []message) {
	for i, m := range list {
		if indexOf(list[:i], m.ID) >= 0 {
			c.w.Faultf("%s of %s has message %s twice", source, c.name, m.ID)
		}
		if m.Role == "user" {
			c.w.knownLocked(m, c.name)
			continue
		}
		c.w.checkCallsLocked(&m, c.name, true)
		c.w.seenLocked(m, c.name)
		for _, v := range c.sortedViews() {
			if v.message.ID == m.ID {
				c.grows(v.message.Text, m)
			}
		}
	}
}

func (c *client) sortedViews() (list []*view) {
	for _, q := range c.w.requests {
		if v := c.views[q.id]; v != nil {
			list = append(list, v)
		}
	}
	return list
}

// grows checks that a text only grows, unless the reply has restarted.
func (c *client) grows(text string, m message) {
	id, _, _ := parseWords(text)
	if q := c.w.requestLocked(id); q != nil && (q.restarts > 0 || q.continued) {
		return
	}
	if !strings.HasPrefix(m.Text, text) {
		c.w.Faultf("%s gets %v, and had the text %q", c.name, m, text)
	}
}

// chunk handles a chunk of a reply.
func (c *client) chunk(f frame) {
	w := c.w
	q := w.continuationLocked(f.ID)
	if q == nil || f.Seq == nil {
		w.Faultf("%s gets a chunk of the reply to %s, without a number or a request: %s", c.name, f.ID, f.Body)
		return
	}
	c.acknowledge(q)
	var b chunk
	if err := json.Unmarshal([]byte(f.Body), &b); err != nil {
		w.Faultf("%s gets the chunk %q: %v", c.name, f.Body, err)
		return
	}
	v := c.replayed
	merged := false
	if f.Replay {
		if v == nil {
			v = &view{connected: c.connections}
			c.replayed = v
			c.first(q, v, f, b)
		}
		if merged = *f.Seq > v.next && strings.HasSuffix(b.Type, "-delta"); merged {
			v.next = *f.Seq // one chunk in place of several
		}
	} else {
		v = c.live(q, f, b)
	}
	if *f.Seq != v.next {
		w.Faultf("%s gets chunk %d of the reply to %s (replay: %v), want %d", c.name, *f.Seq, f.ID, f.Replay, v.next)
	}
	if c.viewEnded(q) {
		w.Faultf("%s gets chunk %d of the reply to %s after its end", c.name, *f.Seq, f.ID)
	}
	if b.Type == "start" && *f.Seq > 0 && q.restarts > 0 {
		v.message = message{Role: "assistant"} // the log has begun again
	}
	v.next = *f.Seq + 1
	v.message.add(b)
	if w.checkCallsLocked(&v.message, c.name, true); !q.continues {
		w.seenLocked(v.message, c.name)
	}
	if merged || f.Replay {
		return
	}
	if w.chunks[f.ID] == nil {
		w.chunks[f.ID] = map[uint64]string{}
	}
	if before, ok := w.chunks[f.ID][*f.Seq]; ok && before != f.Body {
		w.Faultf("%s gets chunk %d of the reply to %s as %s, and it was %s", c.name, *f.Seq, f.ID, f.Body, before)
	}
	w.chunks[f.ID][*f.Seq] = f.Body
}

// viewEnded reports whether this connection has received the end of a reply.
func (c *client) viewEnded(q *request) bool { return c.views[q.id] != nil && c.views[q.id].ended }

// live returns the view of a reply that gets a live chunk.
func (c *client) live(q *request, f frame, b chunk) *view {
	if c.held == q.id {
		c.w.Faultf("%s gets chunk %d of the reply to %s, which it was offered, before the replay", c.name, *f.Seq, q.id)
	}
	v := c.views[q.id]
	if v == nil || v.connected != c.connections {
		if v != nil && v.message.Text != "" && q.restarts == 0 && !(q.continues && c.owned) {
			c.w.Faultf("%s gets chunk %d of the reply to %s without a replay", c.name, *f.Seq, q.id)
		}
		v = &view{message: message{Role: "assistant"}, connected: c.connections}
		c.views[q.id] = v
		c.first(q, v, f, b)
	}
	return v
}

// first checks the first chunk of a view.
func (c *client) first(q *request, v *view, f frame, b chunk) {
	v.message.Role = "assistant"
	if q.continues && c.owned && !f.Replay {
		v.next = *f.Seq
		return
	}
	if *f.Seq > 0 && q.restarts > 0 && b.Type == "start" {
		v.next = *f.Seq
	}
	if b.Type != "start" {
		c.w.Faultf("%s gets %s as the first chunk of the reply to %s", c.name, f.Body, q.id)
	}
}

// replayEnds makes a replay the view of its reply.
func (c *client) replayEnds(f frame) {
	v, before := c.replayed, c.views[f.ID]
	c.held, c.replayed = "", nil
	if v == nil {
		v = &view{message: message{Role: "assistant"}, connected: c.connections}
	}
	if q := c.w.requestLocked(f.ID); before != nil && q != nil && q.restarts == 0 {
		c.grows(before.message.Text, v.message)
		if before.message.ID != "" && v.message.ID != "" && before.message.ID != v.message.ID {
			c.w.Faultf("%s gets a replay of message %s, and the reply was in %s", c.name, v.message.ID, before.message.ID)
		}
	}
	c.views[f.ID] = v
}

// replyEnds handles the end of a request.
func (c *client) replyEnds(f frame) {
	w := c.w
	c.held, c.replayed = "", nil
	q := w.continuationLocked(f.ID)
	if q == nil {
		w.Faultf("%s gets the end of %s, which was not sent", c.name, f.ID)
		return
	}
	w.endedLocked(f.ID, f.Outcome, c.name)
	c.stale = c.stale || q.client == c && q.resent > 0 && len(w.deletions) > 0 // its message may be deleted again
	c.known[f.ID], c.over[f.ID] = true, true
	if f.Outcome == "" {
		return
	}
	if (f.Outcome == failed) != (f.Error == true) || f.Outcome == failed && !strings.HasPrefix(f.Body, "failure of r") && f.Body != gaveUpText {
		w.Faultf("%s gets the end of %s as %s with the error %v, %q", c.name, f.ID, f.Outcome, f.Error, f.Body)
	}
	v := c.views[f.ID]
	if f.Replay {
		return
	}
	if f.Outcome == skipped && w.policy == chat.PolicyDrop && !q.continues {
		c.stale = c.stale || q.resent > 0 || slices.ContainsFunc(w.requests, func(o *request) bool {
			return o != q && o.client == c && !c.known[o.id] && indexOf(o.list, q.user.ID) >= 0 // it may bring the message
		})
		if q.submits && !q.replaces {
			c.list = slices.DeleteFunc(c.list, func(m message) bool { return m.ID == q.user.ID })
		} else {
			c.stale = true
		}
		return
	}
	if c.viewEnded(q) && !slices.Contains(c.sends, f.ID) {
		w.Faultf("%s gets the end of %s twice", c.name, f.ID)
	}
	if v == nil {
		v = &view{}
		c.views[f.ID] = v
	}
	if !v.ended && v.connected == c.connections && q.sent >= c.wiped {
		c.answer(v.message, f.Answered)
	}
	v.ended = true
}
