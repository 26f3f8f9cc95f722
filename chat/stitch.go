package chat

import (
	"slices"
	"strings"
)

// stitcher makes one stream of what several runs of a handler stream, which the accumulator has seen so
// far. It is a value of one run.
//
//   - There is one start, the first chunk, with the id of the message; none with an id if the reply goes
//     on in a message that clients have.
//   - A text that was open when the run before was cut off goes on with the first text of this one, in
//     the same part. Reasoning does not: it is ended, since no model goes on with half a thought.
//   - A step goes on likewise. What a text adds to that was never begun begins it.
//   - The outcome of a call that was made in the message before has the call before it: clients may show
//     what goes on in a message of its own, which would have an outcome of nothing.
//   - What repeats a call that has come further is left out, as is all that ends what is not open.
type stitcher struct {
	acc *accumulator
	// id is that of the message, which the start tells; empty if clients have the message.
	id string
	// cut are the texts that were open when this run began, and in whose part the next one goes on.
	cut []string
	// alias is in which open part a text of this run goes on, by its own id.
	alias   map[string]string
	resumed bool // the log has chunks of a run before this one, and this run has added none
}

// newStitcher begins a run. The accumulator has had all chunks of the log.
func newStitcher(acc *accumulator, id string) *stitcher {
	return &stitcher{acc: acc, id: id, cut: acc.goingOn("text"), alias: map[string]string{}, resumed: acc.chunks > 0}
}

// before is what is to be added to the log before a chunk of the run.
func (s *stitcher) before(c Chunk) (add []Chunk) {
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
	if p, ok := s.acc.call(id); ok && !s.acc.called[id] && s.comesFurther(c) {
		add = append(add, called(p))
	}
	return add
}

// next is what is to be added to the log for a chunk of the run, when it has what is before that.
func (s *stitcher) next(c Chunk) (add []Chunk) {
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
		return s.growing(kind, step, c)
	case t == "start-step":
		if s.acc.inStep {
			return nil
		}
	case t == "finish-step":
		if !s.acc.inStep {
			return nil
		}
		s.cut, s.alias = nil, map[string]string{}
	case t == "finish":
		if reason := c.Member("finishReason"); reason != nil {
			c = c.clone()
			own := mustEncode(map[string]any{"finishReason": reason})
			c.set("messageMetadata", mergeJSON(own, c.Member("messageMetadata")))
			delete(c.object, "finishReason")
		}
	case strings.HasPrefix(t, "tool-"):
		if !s.comesFurther(c) {
			return nil
		}
	}
	return []Chunk{c}
}

// start is the first chunk of the log.
func (s *stitcher) start(c Chunk) Chunk {
	first := c.clone()
	delete(first.object, "messageId")
	if s.id != "" {
		first.set("messageId", s.id)
	}
	return first
}

func (s *stitcher) endReasoning() (ends []Chunk) {
	for _, id := range s.acc.goingOn("reasoning") {
		ends = append(ends, newChunk("reasoning-end").with("id", id))
	}
	return ends
}

// growing is what a chunk of a text or a reasoning becomes.
func (s *stitcher) growing(kind, step string, c Chunk) (add []Chunk) {
	id := c.Text("id")
	if kind == "text" {
		if to, ok := s.alias[id]; ok {
			id = to
		} else if len(s.cut) > 0 {
			s.alias[id], s.cut = s.cut[0], s.cut[1:]
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

// comesFurther says that a chunk brings its call on.
func (s *stitcher) comesFurther(c Chunk) bool {
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

// finish is what ends the stream of a reply that is over, so that nothing in it stays open. One that was
// stopped, or has failed, has no finish, and nothing at all if it has said nothing.
func (s *stitcher) finish(completed bool) (add []Chunk) {
	if s.acc.chunks == 0 && !completed {
		return nil
	}
	if s.acc.chunks == 0 {
		add = append(add, s.start(newChunk("start")))
	}
	add = append(add, s.endReasoning()...)
	for _, id := range s.acc.goingOn("text") {
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

// repairs are what settles the calls of a message with which no model goes on: those that nobody will
// answer, since what ran them has ended. waits says that there are others, which a client, or a person,
// answers: those of the client's own tools, and those that want an approval. Those that were approved may
// have begun.
func repairs(m *Message, clients func(Part) bool, begun []string) (add []Chunk, waits bool) {
	for _, p := range m.Parts {
		if !waiting(p) {
			continue
		}
		c := newChunk("tool-output-error").with("toolCallId", p.Text("toolCallId"))
		switch {
		case p.Text("state") == approvalRequested, p.Text("state") == inputAvailable && clients(p):
			waits = true
			continue
		case p.Text("state") == approvalResponded && !slices.Contains(begun, p.Text("toolCallId")):
			continue // it may run now
		case p.Text("state") == inputStreaming:
			c = newChunk("tool-input-error").with("toolCallId", p.Text("toolCallId")).with("toolName", toolName(p))
			c.set("input", orNull(p.Member("input")))
			if p.Type() == "dynamic-tool" {
				c.set("dynamic", true)
			}
		}
		add = append(add, c.with("errorText", interrupted))
	}
	return add, waits
}

// Outcomes of calls that have none of their own.
const (
	interrupted = "The call was interrupted. Whether it took effect is not known."
	notRun      = "The call was cut off before it was run."
)
