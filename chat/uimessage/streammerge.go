package uimessage

import (
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// streamMerger merges the streams of several runs of a handler into one. The accumulator has received the merged stream
// so far. A streamMerger belongs to one run.
//
//   - There is one start, the first chunk, with the id of the message. It has no id if the reply continues a message
//     that clients have.
//   - The first text of a run continues the text that the previous run left open, in the same part. Reasoning is ended
//     instead, since no model continues an interrupted thought.
//   - An open step continues as well. A text delta without a start begins the text.
//   - Before the result of a call in an older message the stream repeats the call: clients may build a separate
//     message from the stream, and need the call for the result.
//   - A chunk that repeats an earlier state of a call is left out, as is the end of a part that is not open.
type streamMerger struct {
	acc *accumulator
	// id is the message's id for the start chunk; empty if clients have the message.
	id string
	// openTexts are the texts that were open when this run began. The next texts of the run continue them.
	openTexts []string
	// alias maps the id of a text of this run to the open part that it continues.
	alias   map[string]string
	resumed bool // the log has chunks of an earlier run, and none of this one
}

// newStreamMerger begins a run. The accumulator has received all chunks of the log.
func newStreamMerger(acc *accumulator, id string) *streamMerger {
	return &streamMerger{acc: acc, id: id, openTexts: acc.openIDs("text"), alias: map[string]string{}, resumed: acc.chunks > 0}
}

// before returns the chunks to be logged before a chunk of the run.
func (s *streamMerger) before(c Chunk) (add []Chunk) {
	if s.acc.chunks == 0 && c.Type() != "start" {
		add = append(add, s.start(newChunk("start")))
	}
	if s.resumed {
		s.resumed = false
		add = append(add, s.endReasoning()...)
	}
	if !strings.HasPrefix(c.Type(), "tool-output") {
		return add
	}
	id := c.Text("toolCallId")
	if p, ok := s.acc.call(id); ok && !s.acc.streamedCalls[id] && s.advances(c) {
		add = append(add, CallChunk(p))
	}
	return add
}

// next returns the chunks to be logged for a chunk of the run, after those of before.
func (s *streamMerger) next(c Chunk) (add []Chunk) {
	kind, step, _ := cutLast(c.Type(), "-")
	switch t := c.Type(); {
	case t == "start" && s.acc.chunks == 0:
		return []Chunk{s.start(c)}
	case t == "start":
		if meta := c.Member("messageMetadata"); meta != nil {
			add = append(add, newChunk("message-metadata").with("messageMetadata", meta))
		}
		return add
	case kind == "text" || kind == "reasoning":
		return s.textChunks(kind, step, c)
	case t == "start-step":
		if s.acc.inStep {
			return nil
		}
	case t == "finish-step":
		if !s.acc.inStep {
			return nil
		}
		s.openTexts, s.alias = nil, map[string]string{}
	case t == "finish":
		if reason := c.Member("finishReason"); reason != nil {
			c = c.clone()
			own := rawjson.MustEncode(map[string]any{"finishReason": reason})
			c.set("messageMetadata", rawjson.Merge(own, c.Member("messageMetadata")))
			delete(c.object, "finishReason")
		}
	case strings.HasPrefix(t, "tool-"):
		if !s.advances(c) {
			return nil
		}
	}
	return []Chunk{c}
}

// start returns the first chunk of the log.
func (s *streamMerger) start(c Chunk) Chunk {
	first := c.clone()
	delete(first.object, "messageId")
	if s.id != "" {
		first.set("messageId", s.id)
	}
	return first
}

func (s *streamMerger) endReasoning() (ends []Chunk) {
	for _, id := range s.acc.openIDs("reasoning") {
		ends = append(ends, newChunk("reasoning-end").with("id", id))
	}
	return ends
}

// textChunks returns the chunks for a chunk of a text or a reasoning.
func (s *streamMerger) textChunks(kind, step string, c Chunk) (add []Chunk) {
	id := c.Text("id")
	if kind == "text" {
		if to, ok := s.alias[id]; ok {
			id = to
		} else if len(s.openTexts) > 0 {
			s.alias[id], s.openTexts = s.openTexts[0], s.openTexts[1:]
			id = s.alias[c.Text("id")]
		}
	}
	open := s.acc.open[kind+" "+id] != nil
	switch {
	case step == "start" && open, step == "end" && !open:
		return nil
	case step == "delta" && !open:
		add = append(add, newChunk(kind+"-start").with("id", id))
	case step == "end":
		delete(s.alias, c.Text("id"))
	}
	if id != c.Text("id") {
		c = c.clone().with("id", id)
	}
	return append(add, c)
}

// advances reports whether a chunk advances its call.
func (s *streamMerger) advances(c Chunk) bool {
	p, ok := s.acc.call(c.Text("toolCallId"))
	if !ok {
		return c.Text("toolName") != ""
	}
	if c.Type() == "tool-input-delta" {
		return toolRank(p) == 1
	}
	next := toolStep(c)
	if next.object == nil {
		return false
	}
	return toolRank(next) > toolRank(p) || toolRank(next) == toolRank(p) && next.is("preliminary")
}

// finish returns the chunks that end the stream of a reply and its open parts. A reply that was stopped, or has
// failed, has no finish chunk, and no chunk at all if it had none.
func (s *streamMerger) finish(completed bool) (add []Chunk) {
	if s.acc.chunks == 0 && !completed {
		return nil
	}
	if s.acc.chunks == 0 {
		add = append(add, s.start(newChunk("start")))
	}
	add = append(add, s.endReasoning()...)
	for _, id := range s.acc.openIDs("text") {
		add = append(add, newChunk("text-end").with("id", id))
	}
	if s.acc.inStep {
		add = append(add, newChunk("finish-step"))
	}
	if completed && !s.acc.finished {
		add = append(add, newChunk("finish"))
	}
	return add
}
