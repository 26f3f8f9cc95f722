package chat

import (
	"slices"

	"github.com/dohost/dohost/chat/uimessage"
)

// replyState is the state of a running reply as a value that events are applied to: events of the row, and chunks of the
// log. It has no storage, connection or clock. An event is applied after it was written to the store.
type replyState struct {
	row        replyRow
	stream     *uimessage.Stream
	olderCalls map[string]uimessage.CallRecord // of calls of the older message that waited when the reply began
	tools      map[string]bool                 // of the request's client, by name
	recovering bool                            // clients were notified of a recovery
	ended      bool
}

// newReplyState returns the state of a reply without chunks. m is the message that it continues, with the records of its
// calls; without parts if it begins a message.
func newReplyState(row replyRow, m Message, records []uimessage.CallRecord) replyState {
	startID := row.Message
	if row.Continues {
		startID = ""
	}
	s := replyState{
		row: row, stream: uimessage.NewStream(m, startID, row.From), tools: row.clientTools(),
		olderCalls: map[string]uimessage.CallRecord{},
	}
	for _, r := range records {
		s.olderCalls[r.ID] = r
	}
	return s
}

// replyEvent is an event of a reply's row.
type replyEvent func(*replyRow)

// callMade is the event of a call that Answer is to run after the model's answer. If server is set, the server runs the
// call; if client is set, a client runs the calls of the tool.
func callMade(id, tool string, server, client bool) replyEvent {
	return func(row *replyRow) {
		row.AnswerCalls = with(row.AnswerCalls, id)
		if server {
			row.Server = with(row.Server, id)
		}
		if client {
			row.Clients = with(row.Clients, tool)
		}
	}
}

// clientToolCalled is the event of a call of a tool that a client runs.
func clientToolCalled(tool string) replyEvent {
	return func(row *replyRow) { row.Clients = with(row.Clients, tool) }
}

// callBegun is the event of a call that begins to run.
func callBegun(id string) replyEvent {
	return func(row *replyRow) { row.Begun = with(row.Begun, id) }
}

// callApproved is the event of a call that a client has approved.
func callApproved(id string) replyEvent {
	return func(row *replyRow) { row.Allowed = append(slices.Clone(row.Allowed), id) }
}

// with returns a list that contains s. It does not change the original.
func with(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(slices.Clone(list), s)
}

// after returns the row after an event, and reports whether the event changes the records of calls.
func (s *replyState) after(e replyEvent) (row replyRow, changed bool) {
	row = s.row
	e(&row)
	known := func(r *replyRow) int {
		return len(r.AnswerCalls) + len(r.Clients) + len(r.Server) + len(r.Begun) + len(r.Allowed)
	}
	return row, known(&row) != known(&s.row)
}

// chunkLogged applies a chunk that was logged, and reports whether that ends a recovery.
func (s *replyState) chunkLogged(c Chunk) (recovered bool) {
	s.stream.Add(c)
	recovered, s.recovering = s.recovering, false
	return recovered
}

// answered applies a client's answer to a call, if the answer has no chunk: an approval.
func (s *replyState) answered(f *uimessage.ToolAnswer) { s.stream.Answer(f) }

// rebuilt returns the state of an interrupted reply after its chunks were discarded, and the first chunks of its new log.
// m is the message that the reply continues.
func (s *replyState) rebuilt(m Message) (next replyState, add []Chunk) {
	before := uimessage.NewStream(m, "", 0)
	next = *s
	next.stream, add = s.stream.Restart(before, s.row.Begun)
	next.row.From = next.stream.Len()
	next.row.Allowed = slices.DeleteFunc(slices.Clone(s.row.Allowed), func(id string) bool {
		_, older := before.Call(id)
		return !older // it was dropped with the log
	})
	return next, add
}

// partial returns the reply so far.
func (s *replyState) partial() Message { return s.stream.Message() }

// inStep reports whether the reply has a step that has not ended.
func (s *replyState) inStep() bool { return s.stream.InStep() }

// call returns a copy of the part of a call.
func (s *replyState) call(id string) (p Part, ok bool) { return s.stream.Call(id) }

// madeByReply reports whether a reply of this conversation made a call, with the tool and the input that the call has
// now. Only such calls run.
func (s *replyState) madeByReply(p Part) bool {
	id := p.Text("toolCallId")
	if r, older := s.olderCalls[id]; older {
		return r.Made(p)
	}
	return s.stream.MadeCall(id)
}

// madeCalls returns the calls that the reply made itself, and whether the server runs them.
func (s *replyState) madeCalls() map[string]bool { return s.stream.MadeCalls(s.row.Server) }

// serverRuns reports whether the server runs a call of the reply, as Answer decided when the model made the call.
func (s *replyState) serverRuns(id string) bool {
	return s.olderCalls[id].Server || slices.Contains(s.row.Server, id)
}

// clientRuns reports whether a client runs a call of the reply.
func (s *replyState) clientRuns(p Part) bool {
	tool := uimessage.ToolName(p)
	return !s.serverRuns(p.Text("toolCallId")) && (slices.Contains(s.row.Clients, tool) || s.tools[tool])
}

// callRuns returns the reply's knowledge about the runs of its calls.
func (s *replyState) callRuns() uimessage.CallRuns {
	return uimessage.CallRuns{Client: s.clientRuns, Server: s.row.AnswerCalls, Begun: s.row.Begun}
}

// abandonedCalls returns error results for abandoned calls, and reports whether other calls wait: see
// [uimessage.Stream.AbandonedCalls].
func (s *replyState) abandonedCalls(resumes bool) (add []Chunk, waits bool) {
	return s.stream.AbandonedCalls(s.callRuns(), resumes)
}

// unstartedCalls returns the calls without a result that have not begun to run.
func (s *replyState) unstartedCalls() []Part { return s.stream.UnstartedCalls(s.callRuns()) }

// canRunCalls reports whether some calls have not begun to run, and need no client.
func (s *replyState) canRunCalls() bool { return s.stream.CanRunCalls(s.callRuns()) }
