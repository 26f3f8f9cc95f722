package uimessage

import "slices"

// Stream is the log of a reply as a value: the message that its chunks build, and the chunks to be logged for those of a
// run. It is changed by Add, Replay, BeginRun and Answer alone. One goroutine at a time may use it.
type Stream struct {
	acc    *accumulator
	merger *streamMerger
}

// NewStream begins the stream of a reply that continues a message, which may have no parts yet. id is the message's id
// for the start chunk; empty if clients have the message. first is the number of the first chunk.
func NewStream(m Message, id string, first uint64) *Stream {
	s := &Stream{acc: newAccumulator(m)}
	s.acc.chunks = first
	s.merger = newStreamMerger(s.acc, id)
	return s
}

// Replay adds a chunk of the log. The stream has no chunk for an approval: approved reports whether a call was approved.
func (s *Stream) Replay(c Chunk, approved func(id string) bool) {
	if id := c.Text("toolCallId"); c.Type() == "tool-input-available" && approved(id) {
		if p, ok := s.acc.call(id); ok && p.Text("state") == ApprovalRequested {
			setApproval(p, id, true) // the approval precedes this chunk
		}
	}
	s.Add(c)
}

// BeginRun begins a run of the handler after the chunks of the log. approved reports whether a call was approved.
func (s *Stream) BeginRun(approved func(id string) bool) {
	s.Approve(approved)
	s.merger = newStreamMerger(s.acc, s.merger.id)
}

// Approve applies approvals, which have no chunk, to the calls of the message.
func (s *Stream) Approve(approved func(id string) bool) {
	for _, p := range s.acc.msg.Parts {
		id := p.Text("toolCallId")
		if IsCall(p) && approved(id) && toolRank(p) < toolRank(newPart("").with("state", ApprovalResponded)) {
			setApproval(p, id, true)
		}
	}
}

// Add adds a logged chunk, and reports whether that changed the message.
func (s *Stream) Add(c Chunk) bool { return s.acc.add(c) }

// Answer applies a client's answer to its call, if the message has the call.
func (s *Stream) Answer(f *ToolAnswer) {
	if p, ok := s.acc.call(f.CallID); ok {
		f.Apply(p)
	}
}

// Before returns the chunks to be logged before a chunk of the run.
func (s *Stream) Before(c Chunk) []Chunk { return s.merger.before(c) }

// Next returns the chunks to be logged for a chunk of the run, after the chunks of Before.
func (s *Stream) Next(c Chunk) []Chunk { return s.merger.next(c) }

// Finish returns the chunks that end the stream and its open parts. Unless the reply has completed, they contain no
// finish chunk, and there are none if the stream is empty.
func (s *Stream) Finish(completed bool) []Chunk { return s.merger.finish(completed) }

// Len returns the number of the next chunk.
func (s *Stream) Len() uint64 { return s.acc.chunks }

// InStep reports whether a step is open.
func (s *Stream) InStep() bool { return s.acc.inStep }

// Message returns a copy of the message built so far.
func (s *Stream) Message() Message { return s.acc.message() }

// Call returns a copy of the part of a call.
func (s *Stream) Call(id string) (p Part, ok bool) {
	p, ok = s.acc.call(id)
	return p.clone(), ok
}

// Steps returns the number of steps of the message.
func (s *Stream) Steps() (n int) {
	for _, p := range s.acc.msg.Parts {
		if p.Type() == "step-start" {
			n++
		}
	}
	return n
}

// CallsInLastStep reports whether the last step of the message has calls.
func (s *Stream) CallsInLastStep() bool { return CallsInLastStep(&s.acc.msg) }

// CallsInLastStep reports whether the last step of a message has calls.
func CallsInLastStep(m *Message) bool {
	for _, p := range slices.Backward(m.Parts) {
		if IsCall(p) {
			return true
		}
		if p.Type() == "step-start" {
			return false
		}
	}
	return false
}

// ResultsInLastStep returns the chunks of the results of the calls in the last step of a message.
func ResultsInLastStep(m *Message) (list []Chunk) {
	for _, p := range slices.Backward(m.Parts) {
		if p.Type() == "step-start" {
			break
		}
		if IsCall(p) && HasResult(p) && !ProviderExecuted(p) {
			if f, ok := answerOf(p); ok {
				list = append(list, f.Chunk())
			}
		}
	}
	slices.Reverse(list)
	return list
}

// Restart returns a stream that begins after the present end of the log, from the message before the reply, and its first
// chunks: the calls that have a result, and those that began to run, with an error as their result unless they are to repeat.
// They are not added yet.
func (s *Stream) Restart(before *Stream, begun, repeat func(id string) bool) (next *Stream, kept []Chunk) {
	next = NewStream(before.acc.msg, s.merger.id, s.acc.chunks)
	next.merger.resumed = false
	kept = []Chunk{next.merger.start(newChunk("start"))}
	for _, p := range s.acc.msg.Parts {
		id := p.Text("toolCallId")
		old, older := before.acc.call(id)
		switch {
		case !IsCall(p), older && HasResult(old):
		case HasResult(p):
			kept = append(kept, resultChunks(p)...)
		case repeat(id):
			if !older {
				kept = append(kept, CallChunk(p))
			}
		case begun(id):
			kept = append(kept, CallChunk(p), newChunk("tool-output-error").with("toolCallId", id).with("errorText", InterruptedText))
		}
	}
	return next, kept
}
