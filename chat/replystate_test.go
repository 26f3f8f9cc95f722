package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat/uimessage"
)

// TestReplyStateCallEvents applies events and chunks to the calls of a reply, one after the other. Each has the wanted rows
// after it.
func TestReplyStateCallEvents(t *testing.T) {
	s := newReplyState(replyRow{ID: "r", Message: "m"}, Message{ID: "m", Role: RoleAssistant}, map[string]callRow{})
	s.stream.Add(uimessage.MakeChunk("start", "messageId", "m"))
	type step struct {
		name  string
		id    string
		event callEvent // if nil, the chunk
		chunk Chunk
		want  string
	}
	for _, c := range []step{
		{"a call of the server", "1", callMade("f", runsOnServer, "r", ""), Chunk{}, "1 f server pending"},
		{"that call again", "1", callMade("f", runsOnServer, "r", ""), Chunk{}, "1 f server pending"},
		{"its input", "1", nil, ToolInput("1", "f", "{}"), "1 f server pending made"},
		{"its approval is requested", "1", nil, uimessage.MakeChunk("tool-approval-request", "toolCallId", "1"), "1 f server approval made"},
		{"its approval", "1", callApproved(1), Chunk{}, "1 f server pending made approved"},
		{"it begins", "1", callBegun(&Tool{}, "key", 0, 2), Chunk{}, "1 f server running made approved"},
		{"it begins again", "1", callBegun(&Tool{}, "key", 0, 3), Chunk{}, "1 f server running made approved"},
		{"a preliminary result", "1", nil, uimessage.MakeChunk("tool-output-available", "toolCallId", "1", "preliminary", true), "1 f server running made approved"},
		{"its result", "1", nil, uimessage.MakeChunk("tool-output-available", "toolCallId", "1"), "1 f server completed made approved"},
		{"a call of an unknown tool", "2", callMade("g", runsNowhere, "r", ""), Chunk{}, "2 g nowhere pending"},
		{"its input", "2", nil, ToolInput("2", "g", "{}"), "2 g nowhere pending made"},
		{"its error", "2", nil, uimessage.MakeChunk("tool-output-error", "toolCallId", "2"), "2 g nowhere failed made"},
		{"a call of a client", "3", callMade("h", runsOnClient, "r", ""), Chunk{}, "3 h client pending offered"},
		{"its input", "3", nil, ToolInput("3", "h", "{}"), "3 h client client made offered"},
		{"a call that the handler sends", "4", nil, ToolInput("4", "f", "{}"), "4 f  pending made"},
		{"it is denied", "4", nil, uimessage.MakeChunk("tool-output-denied", "toolCallId", "4"), "4 f  denied made"},
		{"a call with invalid input", "5", nil, ToolInput("5", "f", "{"), "5 f  failed"},
		{"an approved call that a client runs", "6", callMade("f", runsOnServer, "r", ""), Chunk{}, "6 f server pending"},
		{"it is offered", "6", callOffered("r", ""), Chunk{}, "6 f client pending offered"},
		{"a call that the provider runs", "7", nil, uimessage.MakeChunk("tool-input-available", "toolCallId", "7", "toolName", "f", "providerExecuted", true), ""},
	} {
		if c.event != nil {
			_, row := s.after(c.id, 1, c.event)
			s.setCall(row)
		} else {
			if _, row, ok := s.afterChunk(c.chunk, 1); ok {
				s.setCall(row)
			}
			s.chunkLogged(c.chunk)
		}
		if got := callText(s.calls[c.id]); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if r := s.calls["1"]; r.Created != 1 || r.Changed != 1 || r.Message != "m" || r.Reply != "r" {
		t.Errorf("row %+v", r)
	}
}

// callText describes the row of a call.
func callText(r callRow) string {
	if r == (callRow{}) {
		return ""
	}
	text := fmt.Sprintf("%s %s %s %s", r.ID, r.Tool, r.Runs, r.State)
	for _, f := range []struct {
		is   bool
		name string
	}{{r.Digest != "", " made"}, {r.Approved, " approved"}, {r.Offered != "", " offered"}} {
		if f.is {
			text += f.name
		}
	}
	return text
}

// TestReplyStateCalls asks a reply about calls of an older message and of its own chunks.
func TestReplyStateCalls(t *testing.T) {
	older := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		uimessage.MakePart("tool-f", "toolCallId", "old", "state", uimessage.InputAvailable),
		uimessage.MakePart("tool-f", "toolCallId", "forged", "state", uimessage.InputAvailable),
		uimessage.MakePart("tool-g", "toolCallId", "offered before", "state", uimessage.InputAvailable),
	}}
	row := replyRow{ID: "r", Message: "m", Continues: true, Tools: []byte(`[{"name":"h"}]`)}
	s := newReplyState(row, older, map[string]callRow{
		"old":            {Message: "m", ID: "old", Reply: "before", Digest: digestOf(older.Parts[0]), Runs: runsOnServer},
		"forged":         {Message: "m", ID: "forged", Reply: "before", Digest: "other input", Runs: runsInHandler},
		"offered before": {Message: "m", ID: "offered before", Reply: "before", Digest: digestOf(older.Parts[2]), Runs: runsOnClient, Offered: "before"},
	})
	s.recovering = true
	for i, c := range []struct {
		id, tool string
		runs     executor
	}{{"own", "f", runsOnServer}, {"g1", "g", runsOnClient}, {"h1", "h", runsInHandler}} {
		if c.runs != runsInHandler {
			_, made := s.after(c.id, 1, callMade(c.tool, c.runs, "r", ""))
			s.setCall(made)
		}
		_, made, _ := s.afterChunk(ToolInput(c.id, c.tool, ""), 1)
		s.setCall(made)
		if recovered := s.chunkLogged(ToolInput(c.id, c.tool, "")); recovered != (i == 0) {
			t.Errorf("chunk %d ends the recovery: %t", i, recovered)
		}
	}
	var got []string
	for _, p := range s.partial().Parts {
		id := p.Text("toolCallId")
		got = append(got, fmt.Sprintf("%s made %t server %t client %t", id, s.madeByReply(p), s.serverRuns(id), s.clientRuns(p)))
	}
	want := []string{
		"old made true server true client false", "forged made false server false client false",
		"offered before made true server false client false",
		"own made true server true client false", "g1 made true server false client true", "h1 made true server false client true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(s.unstartedCalls()); n != 2 || !s.canRunCalls() {
		t.Errorf("%d calls have not begun, runnable: %t", n, s.canRunCalls())
	}
	_, begun := s.after("own", 1, callBegun(&Tool{}, "key", 0, 1))
	s.setCall(begun)
	if n := len(s.unstartedCalls()); n != 1 || s.canRunCalls() {
		t.Errorf("%d calls have not begun after one began, runnable: %t", n, s.canRunCalls())
	}
}

// TestReplyStateStartID reads the id of the start chunk: clients have the message that a reply continues.
func TestReplyStateStartID(t *testing.T) {
	for continues, want := range map[bool]string{false: "m", true: ""} {
		s := newReplyState(replyRow{Message: "m", Continues: continues}, Message{ID: "m", Role: RoleAssistant}, map[string]callRow{})
		if add := s.stream.Before(TextDelta("1", "x")); len(add) != 1 || add[0].Text("messageId") != want {
			t.Errorf("continues %t: %v, want the id %q", continues, add, want)
		}
	}
}

// TestReplyStateRebuilt discards the chunks of a reply with three calls: one of an older message, and two of its own, one of
// which has begun.
func TestReplyStateRebuilt(t *testing.T) {
	older := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		uimessage.MakePart("tool-f", "toolCallId", "old", "state", uimessage.InputAvailable),
	}}
	s := newReplyState(replyRow{Message: "m", Continues: true}, older, map[string]callRow{
		"old":   {ID: "old", State: CallPending, Approved: true},
		"begun": {ID: "begun", State: CallRunning, Approved: true},
		"own":   {ID: "own", State: CallPending, Approved: true},
	})
	for _, c := range []Chunk{TextDelta("1", "hello"), ToolInput("begun", "f", ""), ToolInput("own", "f", ""), TextDelta("2", "world")} {
		s.chunkLogged(c)
	}
	next, add := s.rebuilt(older)
	var types []string
	for _, c := range add {
		types = append(types, c.Type())
	}
	if got := strings.Join(types, " "); got != "start tool-input-available tool-output-error" {
		t.Errorf("the new log begins with %s", got)
	}
	if next.row.From != 4 || len(next.calls) != 2 || !next.approved("old") || !next.begun("begun") || next.partial().PlainText() != "" || next.stream.Len() != 4 {
		t.Errorf("From %d, %v, %q, %d chunks", next.row.From, next.calls, next.partial().PlainText(), next.stream.Len())
	}
	if s.row.From != 0 || len(s.calls) != 3 || s.partial().PlainText() != "helloworld" {
		t.Errorf("the state before has changed: %d, %v, %q", s.row.From, s.calls, s.partial().PlainText())
	}
}

// An approved call of an older request is not abandoned if an interruption follows its repetition in the stream.
func TestApprovalOutlivesARepeatedCall(t *testing.T) {
	part, err := NewPart("tool-f", map[string]any{
		"toolCallId": "1", "state": uimessage.ApprovalResponded, "input": map[string]any{}, "approval": map[string]any{"id": "a", "approved": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for runs, abandoned := range map[executor]int{runsOnServer: 0, runsOnClient: 1} {
		row := callRow{Message: "m", ID: "1", Reply: "old", Tool: "f", Runs: runs, State: CallPending, Approved: true}
		m := Message{ID: "m", Role: RoleAssistant, Parts: []Part{part}}
		s := newReplyState(replyRow{ID: "new", Message: "m", Continues: true}, m, map[string]callRow{"1": row})
		for _, c := range s.stream.Before(uimessage.MakeChunk("tool-output-available", "toolCallId", "1")) {
			s.chunkLogged(c)
		}
		s.stream.BeginRun(s.approved)
		if p, _ := s.call("1"); p.Text("state") != uimessage.InputAvailable {
			t.Errorf("%s: the call is %s after its repetition", runs, p.Text("state"))
		}
		if add, waits := s.abandonedCalls(true); len(add) != abandoned || waits {
			t.Errorf("%s: %d results, waits %t", runs, len(add), waits)
		}
	}
}
