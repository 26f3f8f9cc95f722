package chat

import (
	"cmp"
	"strings"

	"github.com/dohost/dohost/chat/uimessage"
)

// replyState is the state of a running reply as a value that events are applied to: events of its calls, and chunks of the
// log. It has no storage, no connection and no clock. An event is applied after it was written to the store.
type replyState struct {
	row        replyRow
	stream     *uimessage.Stream
	calls      map[string]callRow // of the message, by id
	tools      map[string]bool    // of the request's client, by name
	recovering bool               // clients were notified of a recovery
	ended      bool
}

// newReplyState returns the state of a reply without chunks. m is the message that it continues, without parts if it
// begins a message, and calls are the calls of that message and of the reply.
func newReplyState(row replyRow, m Message, calls map[string]callRow) replyState {
	startID := row.Message
	if row.Continues {
		startID = ""
	}
	return replyState{row: row, stream: uimessage.NewStream(m, startID, row.From), tools: row.clientTools(), calls: calls}
}

// callEvent is an event of a call, which no chunk has.
type callEvent func(callRow) callRow

// callMade is the event of a call that Answer is to run after the model's answer.
// schema is the schema of the result if a client runs it.
func callMade(tool string, runs executor, request, schema string) callEvent {
	return func(r callRow) callRow {
		if r.Tool != "" {
			return r // the model repeats the id of a call
		}
		r.Tool, r.Runs = tool, runs
		if runs == runsOnClient {
			r.Offered, r.Schema = request, schema
		}
		return r
	}
}

// callOffered is the event of an approved call that a reply sends to clients.
func callOffered(request, schema string) callEvent {
	return func(r callRow) callRow {
		r.Runs, r.Offered, r.Schema = runsOnClient, request, schema
		return r
	}
}

// callBegun is the event of a call that begins to run on the server, with its idempotency key and its number among equal calls.
func callBegun(t *Tool, key string, equal uint64, now int64) callEvent {
	return func(r callRow) callRow {
		r.KeepLate = t.KeepLate
		if r.Attempts++; r.Attempts == 1 {
			r.Equal = equal
		}
		if external := t.External != nil; r.Attempts == 1 || external != r.External { // or a new version of the program differs
			r.External, r.Async, r.Expires, r.Schema = external, false, 0, ""
			if external {
				r.Async, r.Expires, r.Schema = t.External.Async, t.External.expires(now), t.Output.schema()
			}
		}
		r.Repeats = t.repeats() && r.Attempts < maxToolAttempts
		r.Key = cmp.Or(r.Key, key)
		return r.in(CallRunning, now)
	}
}

// callExternal is the event of a call that another party runs.
func callExternal(now int64) callEvent {
	return func(r callRow) callRow { return r.in(CallExternal, now) }
}

// callCertain is the event of a call whose run ends with an error that leaves no doubt about its effect.
func callCertain(r callRow) callRow {
	r.Certain = true
	return r
}

// callApproved is the event of a call that a client has approved.
func callApproved(now int64) callEvent {
	return func(r callRow) callRow {
		r.Approved = true
		return r.in(CallPending, now)
	}
}

// callExpires is the event of a call that is about to wait for an approval with a time limit.
func callExpires(at int64) callEvent {
	return func(r callRow) callRow {
		r.Expires = at
		return r
	}
}

// after returns the row of a call before and after an event at the time now.
func (s *replyState) after(id string, now int64, e callEvent) (old, row callRow) {
	old, ok := s.calls[id]
	row = old
	if !ok {
		row = callRow{Message: s.row.Message, ID: id, Reply: s.row.ID, State: CallPending, Created: now, Changed: now}
	}
	return old, e(row)
}

// afterChunk returns the row of the call of a chunk before and after the chunk, at the time now. ok is false if the chunk has no call whose
// result the server or a client supplies.
func (s *replyState) afterChunk(c Chunk, now int64) (old, row callRow, ok bool) {
	id := c.Text("toolCallId")
	if id == "" || string(c.Member("providerExecuted")) == "true" {
		return old, row, false
	}
	if _, known := s.calls[id]; !known {
		switch _, older := s.call(id); {
		case older: // the provider runs it, or it had its result before the reply
			return old, row, false
		case !strings.HasPrefix(c.Type(), "tool-input") || c.Type() == "tool-input-delta":
			return old, row, false
		}
	}
	old, row = s.after(id, now, func(r callRow) callRow {
		if r.Tool == "" {
			r.Tool = c.Text("toolName")
		}
		return r.withChunk(c, s.row.ID, now)
	})
	return old, row, true
}

// setCall applies the row of a call.
func (s *replyState) setCall(row callRow) { s.calls[row.ID] = row }

// chunkLogged applies a chunk that was logged, and reports whether that ends a recovery.
func (s *replyState) chunkLogged(c Chunk) (recovered bool) {
	s.stream.Add(c)
	recovered, s.recovering = s.recovering, false
	return recovered
}

// answered applies a client's answer to a call, if the answer has no chunk: an approval.
func (s *replyState) answered(f *uimessage.ToolAnswer) { s.stream.Answer(f) }

// rebuilt returns the state of an interrupted reply after its chunks were discarded, and the first chunks of its new log.
// m is the message that the reply continues. The calls that the reply made are discarded as well, unless they have a
// result or began to run.
func (s *replyState) rebuilt(m Message) (next replyState, add []Chunk) {
	before := uimessage.NewStream(m, "", 0)
	next = *s
	next.stream, add = s.stream.Restart(before, s.begun, func(id string) bool { return s.repeat(id) || s.external(id) })
	next.stream.Approve(s.approved)
	next.row.From = next.stream.Len()
	next.calls = map[string]callRow{}
	for id, r := range s.calls {
		if _, older := before.Call(id); older || r.ended() || r.State == CallRunning || r.State == CallExternal {
			next.calls[id] = r
		}
	}
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
	r := s.calls[p.Text("toolCallId")]
	return r.Digest != "" && r.Digest == digestOf(p)
}

// serverRuns reports whether the server runs a call of the reply, as Answer decided when the model made the call.
func (s *replyState) serverRuns(id string) bool { return s.calls[id].Runs == runsOnServer }

// clientRuns reports whether a client runs a call of the reply.
func (s *replyState) clientRuns(p Part) bool {
	r := s.calls[p.Text("toolCallId")]
	return r.Runs != runsOnServer && (r.Runs == runsOnClient && r.Offered == s.row.ID || s.tools[uimessage.ToolName(p)])
}

// approved reports whether a client has approved a call.
func (s *replyState) approved(id string) bool { return s.calls[id].Approved }

// begun reports whether a call began to run on the server.
func (s *replyState) begun(id string) bool { return s.calls[id].State == CallRunning }

// external reports whether a call waits for Complete.
func (s *replyState) external(id string) bool { return s.calls[id].State == CallExternal }

// repeat reports whether a call that began to run runs again after an interruption.
func (s *replyState) repeat(id string) bool { return s.begun(id) && s.calls[id].Repeats }

// callRuns returns the reply's knowledge about the runs of its calls.
func (s *replyState) callRuns() uimessage.CallRuns {
	return uimessage.CallRuns{
		Client: s.clientRuns, External: s.external, Begun: s.begun, Repeat: s.repeat,
		Approved: func(id string) bool { return s.approved(id) && s.serverRuns(id) },
		Waits: func(id string) bool {
			r := s.calls[id]
			return r.Runs != runsInHandler && r.Reply == s.row.ID
		},
	}
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
