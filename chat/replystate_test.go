package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat/uimessage"
)

// TestReplyStateEvents applies events of the row one after the other. Each event has the wanted row after it, and whether
// it changes the records of calls.
func TestReplyStateEvents(t *testing.T) {
	s := newReplyState(replyRow{ID: "r", Message: "m"}, Message{ID: "m", Role: RoleAssistant}, nil)
	for _, c := range []struct {
		name    string
		event   replyEvent
		want    string
		changed bool
	}{
		{"a call of the server", callMade("1", "f", true, false), "calls 1, server 1", true},
		{"that call again", callMade("1", "f", true, false), "calls 1, server 1", false},
		{"a call of an unknown tool", callMade("2", "g", false, false), "calls 1 2, server 1", true},
		{"that call, of a client's tool", callMade("2", "g", false, true), "calls 1 2, server 1, clients g", true},
		{"an approved call of a client's tool", clientToolCalled("h"), "calls 1 2, server 1, clients g h", true},
		{"another call of that tool", clientToolCalled("h"), "calls 1 2, server 1, clients g h", false},
		{"an approval", callApproved("1"), "calls 1 2, server 1, clients g h, allowed 1", true},
		{"a call begins", callBegun("1"), "calls 1 2, server 1, clients g h, allowed 1, begun 1", true},
		{"a call begins again", callBegun("1"), "calls 1 2, server 1, clients g h, allowed 1, begun 1", false},
	} {
		before := callsOf(&s.row)
		row, changed := s.after(c.event)
		if got := callsOf(&row); got != c.want || changed != c.changed {
			t.Errorf("%s: %s, %t, want %s, %t", c.name, got, changed, c.want, c.changed)
		}
		if after := callsOf(&s.row); after != before {
			t.Errorf("%s: the row before it was %s, is %s", c.name, before, after)
		}
		s.row = row
	}
}

// callsOf returns the records of a row about calls.
func callsOf(r *replyRow) string {
	var records []string
	for _, c := range []struct {
		name string
		list []string
	}{{"calls", r.AnswerCalls}, {"server", r.Server}, {"clients", r.Clients}, {"allowed", r.Allowed}, {"begun", r.Begun}} {
		if len(c.list) > 0 {
			records = append(records, c.name+" "+strings.Join(c.list, " "))
		}
	}
	return strings.Join(records, ", ")
}

// TestReplyStateCalls asks a reply about calls of an older message and of its own chunks.
func TestReplyStateCalls(t *testing.T) {
	older := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		uimessage.MakePart("tool-f", "toolCallId", "old", "state", uimessage.InputAvailable),
		uimessage.MakePart("tool-f", "toolCallId", "forged", "state", uimessage.InputAvailable),
	}}
	records := uimessage.RecordCalls(&older, []uimessage.CallRecord{{ID: "forged"}}, map[string]bool{"old": true})
	row := replyRow{
		Message: "m", Continues: true, Server: []string{"own"}, Clients: []string{"f", "g"}, Tools: []byte(`[{"name":"h"}]`),
		AnswerCalls: []string{"own", "g1"}, Begun: []string{"g1"},
	}
	s := newReplyState(row, older, records)
	s.recovering = true
	for i, c := range []Chunk{ToolInput("own", "f", ""), ToolInput("g1", "g", ""), ToolInput("h1", "h", "")} {
		if recovered := s.chunkLogged(c); recovered != (i == 0) {
			t.Errorf("chunk %d ends the recovery: %t", i, recovered)
		}
	}
	var got []string
	for _, p := range s.partial().Parts {
		id := p.Text("toolCallId")
		got = append(got, fmt.Sprintf("%s made %t server %t client %t", id, s.madeByReply(p), s.serverRuns(id), s.clientRuns(p)))
	}
	want := []string{
		"old made true server true client false", "forged made false server false client true",
		"own made true server true client false", "g1 made true server false client true", "h1 made true server false client true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(s.unstartedCalls()); n != 1 || !s.canRunCalls() {
		t.Errorf("%d calls have not begun, runnable: %t", n, s.canRunCalls())
	}
	if made := fmt.Sprint(s.madeCalls()); made != "map[g1:false h1:false own:true]" {
		t.Errorf("made: %s", made)
	}
}

// TestReplyStateStartID reads the id of the start chunk: clients have the message that a reply continues.
func TestReplyStateStartID(t *testing.T) {
	for continues, want := range map[bool]string{false: "m", true: ""} {
		s := newReplyState(replyRow{Message: "m", Continues: continues}, Message{ID: "m", Role: RoleAssistant}, nil)
		if add := s.stream.Before(TextDelta("1", "x")); len(add) != 1 || add[0].Text("messageId") != want {
			t.Errorf("continues %t: %v, want the id %q", continues, add, want)
		}
	}
}

// TestReplyStateRebuilt discards the chunks of a reply with two calls that were approved: one of an older message, and one
// of its own, which has begun.
func TestReplyStateRebuilt(t *testing.T) {
	older := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		uimessage.MakePart("tool-f", "toolCallId", "old", "state", uimessage.InputAvailable),
	}}
	s := newReplyState(replyRow{Message: "m", Continues: true, Begun: []string{"own"}, Allowed: []string{"old", "own"}}, older, nil)
	for _, c := range []Chunk{TextDelta("1", "hello"), ToolInput("own", "f", ""), TextDelta("2", "world")} {
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
	if next.row.From != 3 || callsOf(&next.row) != "allowed old, begun own" || next.partial().PlainText() != "" || next.stream.Len() != 3 {
		t.Errorf("From %d, %s, %q, %d chunks", next.row.From, callsOf(&next.row), next.partial().PlainText(), next.stream.Len())
	}
	if s.row.From != 0 || callsOf(&s.row) != "allowed old own, begun own" || s.partial().PlainText() != "helloworld" {
		t.Errorf("the state before has changed: %d, %s, %q", s.row.From, callsOf(&s.row), s.partial().PlainText())
	}
}
