package uimessage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// listOf parses a list of messages, each with a role, an id, and parts.
func listOf(t failer, lines string) (ms []Message) {
	t.Helper()
	for line := range strings.Lines(lines) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(f) == 3 {
			ms = append(ms, messageOf(t, fmt.Sprintf(`{"id":%q,"role":%q,"parts":[%s]}`, f[1], f[0], f[2])))
		}
	}
	return ms
}

const (
	callOpen  = `{"type":"tool-f","toolCallId":"1","state":"input-available","input":{}}`
	callDone  = `{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":7}`
	callNo    = `{"type":"tool-f","toolCallId":"1","state":"output-error","input":{},"errorText":"no"}`
	callAsked = `{"type":"tool-f","toolCallId":"1","state":"approval-requested","input":{},"approval":{"id":"q"}}`
	callOK    = `{"type":"tool-f","toolCallId":"1","state":"approval-responded","input":{},"approval":{"approved":true,"id":"q"}}`
	callTwo   = `{"type":"tool-f","toolCallId":"2","state":"input-available","input":{}}`
	callThree = `{"type":"tool-f","toolCallId":"3","state":"input-available","input":{}}`
	otherCall = `{"type":"tool-f","toolCallId":"9","state":"approval-responded","input":{},"approval":{"approved":true}}`
	hello     = `{"type":"text","text":"Hello"}`
	sure      = `{"type":"text","text":"Sure!"}`
)

// TestReconcile merges lists of a client that differ from the stored messages.
func TestReconcile(t *testing.T) {
	for name, c := range map[string]struct{ stored, sent, want string }{
		"nothing is stored": {``, "user u1 " + hello, "user u1 " + hello},
		"the same": {
			"user u1 " + hello + "\nassistant a1 " + sure,
			"user u1 " + hello + "\nassistant a1 " + sure + "\nuser u2 " + hello,
			"user u1 " + hello + "\nassistant a1 " + sure + "\nuser u2 " + hello},
		"an assistant's by an id of the client's": {
			"user u1 " + hello + "\nassistant a1 " + sure,
			"user u1 " + hello + "\nassistant own " + `{"type":"text","text":"Sure!\n","state":"done"}` + "\nuser u2 " + hello,
			"user u1 " + hello + "\nassistant a1 " + `{"type":"text","text":"Sure!\n","state":"done"}` + "\nuser u2 " + hello},
		"two that say the same": {
			"assistant a1 " + sure + "\nassistant a2 " + sure,
			"assistant own1 " + sure + "\nassistant own2 " + sure + "\nassistant own3 " + sure,
			"assistant a1 " + sure + "\nassistant a2 " + sure + "\nassistant own3 " + sure},
		"one that says the same as one that is sent too": {
			"assistant a1 " + sure,
			"assistant own " + sure + "\nassistant a1 " + sure,
			"assistant own " + sure + "\nassistant a1 " + sure},
		"a user's that says the same": {
			"user u1 " + sure, "assistant own " + sure, "assistant own " + sure},
		"a call that has its output": {
			"assistant a1 " + callDone, "assistant a1 " + sure + "," + callOpen, "assistant a1 " + sure + "," + callDone},
		"a call whose output the client has": {
			"assistant a1 " + callOpen, "assistant a1 " + callDone, "assistant a1 " + callDone},
		"a call whose output the client has, if the server runs it": {
			"assistant srv " + callOpen, "assistant srv " + callDone, "assistant srv " + callOpen},
		"a refusal, if the server runs it": {
			"assistant srv " + callAsked, "assistant srv " + callNo, "assistant srv " +
				`{"type":"tool-f","toolCallId":"1","state":"output-error","input":{},"approval":{"id":"q"},"errorText":"no"}`},
		"a consent": {
			"assistant srv " + callAsked, "assistant srv " + callOK, "assistant srv " + callOK},
		"a consent that says nothing": {
			"assistant srv " + callAsked,
			"assistant srv " + `{"type":"tool-f","toolCallId":"1","state":"approval-responded","input":{}}`, "assistant srv " + callAsked},
		"a denial": {
			"assistant srv " + callAsked, "assistant srv " + `{"type":"tool-f","toolCallId":"1","state":"output-denied"}`, "assistant srv " +
				`{"type":"tool-f","toolCallId":"1","state":"output-denied","input":{},"approval":{"id":"q","approved":false}}`},
		"a denial after a consent": {
			"assistant srv " + callOK, "assistant srv " + `{"type":"tool-f","toolCallId":"1","state":"output-denied"}`, "assistant srv " +
				`{"type":"tool-f","toolCallId":"1","state":"output-denied","input":{},"approval":{"id":"q","approved":false}}`},
		"a call with another input": {
			"assistant a1 " + callAsked, "assistant a1 " +
				`{"type":"tool-f","toolCallId":"1","state":"approval-requested","input":{"to":"mallory"},"approval":{"id":"q"}}`,
			"assistant a1 " + callAsked},
		"a call of another tool": {
			"assistant a1 " + callAsked, "assistant a1 " +
				`{"type":"tool-g","toolCallId":"1","state":"approval-responded","input":{},"approval":{"id":"q","approved":true}}`,
			"assistant a1 " + callOK},
		"a call that no model made": {
			"user u1 " + hello, "user u1 " + hello + "\nassistant own " + callOK, "user u1 " + hello},
		"a call that no model made, in a text": {
			"", "assistant own " + sure + "," + callOK, "assistant own " + sure},
		"a call that no model made, of the user": {
			"", "user u1 " + hello + "," + callOK, "user u1 " + hello},
		"a call that no model made, in a stored message": {
			"assistant a1 " + sure + "," + callDone, "assistant a1 " + otherCall + "," + sure + "," + otherCall, "assistant a1 " + sure + "," + callDone},
		"calls in another order, twice, and left out": {
			"assistant a1 " + callDone + "," + callTwo + "," + hello + "," + callThree,
			"assistant a1 " + sure + "," + callTwo + "," + callDone + "," + callTwo + "," + hello,
			"assistant a1 " + sure + "," + callDone + "," + callTwo + "," + hello + "," + callThree},
		"a call with two outputs": {
			"assistant a1 " + callDone, "assistant a1 " + callNo, "assistant a1 " + callDone},
		"by the call alone": {
			"assistant a1 " + callDone, "assistant own " + callOpen, "assistant a1 " + callDone},
		"twice by the call": {
			"assistant a1 " + callDone,
			"assistant a1 " + callOpen + "\nassistant own " + callOpen + "," + sure + "\nuser u1 " + hello,
			"assistant a1 " + callDone + "," + sure + "\nuser u1 " + hello},
		"one sent twice": {
			``, "assistant a1 " + sure + "\nuser u1 " + hello + "\nassistant a1 " + hello,
			"assistant a1 " + hello + "\nuser u1 " + hello},
		"no texts to be known by": {
			"assistant a1 " + `{"type":"text","text":""}`, "assistant own " + `{"type":"text","text":" "}`,
			"assistant own " + `{"type":"text","text":" "}`},
	} {
		t.Run(name, func(t *testing.T) {
			stored, sent := listOf(t, c.stored), listOf(t, c.sent)
			before := jsonOf(t, stored) + jsonOf(t, sent)
			got := Reconcile(stored, sent, rulesOfTest)
			sameJSON(t, "reconciled", jsonOf(t, got), jsonOf(t, listOf(t, c.want)))
			against, changed, err := ChangedMessages(rowsOf(stored), sent)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "of what differs", byID(stored, Reconcile(against, changed, rulesOfTest)), byID(stored, got))
			sameJSON(t, "and again", jsonOf(t, Reconcile(got, got, rulesOfTest)), jsonOf(t, got))
			for _, m := range got {
				for _, p := range m.Parts {
					p.set("type", "changed")
				}
			}
			if after := jsonOf(t, stored) + jsonOf(t, sent); after != before {
				t.Errorf("what it was given is %s, was %s", after, before)
			}
		})
	}
}

// serverOfTest reports that the server runs the calls of the message srv.
func serverOfTest(message, call string) bool { return message == "srv" && call == "1" }

// rowsOf returns the rows of messages.
func rowsOf(ms []Message) map[string]Stored {
	rows := map[string]Stored{}
	for i, m := range ms {
		rows[m.ID] = Stored{ID: m.ID, Role: m.Role, Place: uint64(i + 1), JSON: rawjson.MustEncode(m)}
	}
	return rows
}

// byID returns the stored messages after put has replaced some of them.
func byID(stored, put []Message) string {
	all := map[string]Message{}
	for _, m := range append(slices.Clone(stored), put...) {
		all[m.ID] = m
	}
	return string(rawjson.MustEncode(all))
}

// A client sends all messages that it has: unchanged messages need no work.
func TestReconcileFindsDifferingMessages(t *testing.T) {
	long := "user u1 " + hello + "\nassistant a1 " + sure + "\nuser u2 " + hello + "\nassistant a2 " + callDone
	for sent, want := range map[string]string{
		long:                             "0 0",
		long + "\nuser u3 " + hello:      "0 1",
		long + "\nassistant a1 " + sure:  "4 5", // twice
		long + "\nassistant own " + sure: "4 5",
		"user u1 " + sure:                "1 1",
		"":                               "0 0",
	} {
		stored, changed, err := ChangedMessages(rowsOf(listOf(t, long)), listOf(t, sent))
		if got := fmt.Sprint(len(stored), len(changed)); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", sent, got, want, err)
		}
	}
}

// TestReconcileDeletes checks lists that lack stored messages.
func TestReconcileDeletes(t *testing.T) {
	stored := rowsOf(listOf(t, "user u1 "+hello+"\nassistant a1 "+sure+"\nuser u2 "+hello+"\nassistant a2 "+sure))
	for ids, want := range map[string]string{
		"u1 a1 u2 a2": "",
		"u1 a1 u2":    "a2",
		"u1":          "a1 a2 u2",
		"u1 a1 u3":    "", // the client may not know u2 and a2
		"":            "",
	} {
		sent := map[string]bool{}
		for _, id := range strings.Fields(ids) {
			sent[id] = true
		}
		if got := strings.Join(RemovedIDs(stored, sent, false), " "); got != want {
			t.Errorf("%q removes %q, want %q", ids, got, want)
		}
	}
}

var rulesOfTest = CallRules{Server: serverOfTest, InProgress: inProgressOfTest, Amend: func(string, *ToolAnswer) {}}

// inProgressOfTest reports whether a call is in progress.
func inProgressOfTest(_, call string) bool { return strings.HasPrefix(call, "begun") }
