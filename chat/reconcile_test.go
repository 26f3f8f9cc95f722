package chat

import (
	"fmt"
	"strings"
	"testing"
)

// listOf reads a list of messages, each by role, id, and parts.
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
	callOpen = `{"type":"tool-f","toolCallId":"1","state":"input-available","input":{}}`
	callDone = `{"type":"tool-f","toolCallId":"1","state":"output-available","input":{},"output":7}`
	callNo   = `{"type":"tool-f","toolCallId":"1","state":"output-error","input":{},"errorText":"no"}`
	hello    = `{"type":"text","text":"Hello"}`
	sure     = `{"type":"text","text":"Sure!"}`
)

// TestReconcile has a client send a list that is not what is stored.
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
		"a call with two outputs": {
			"assistant a1 " + callDone, "assistant a1 " + callNo, "assistant a1 " + callDone},
		"by the call alone": {
			"assistant a1 " + callDone, "assistant own " + callOpen, "assistant a1 " + callDone},
		"twice by the call": {
			"assistant a1 " + callDone,
			"assistant a1 " + callOpen + "\nassistant own " + callOpen + "," + sure + "\nuser u1 " + hello,
			"assistant a1 " + callDone + "," + sure + "\nuser u1 " + hello},
		"one sent twice": {
			``, "assistant a1 " + callDone + "\nuser u1 " + hello + "\nassistant a1 " + callOpen,
			"assistant a1 " + callDone + "\nuser u1 " + hello},
		"no texts to be known by": {
			"assistant a1 " + `{"type":"text","text":""}`, "assistant own " + `{"type":"text","text":" "}`,
			"assistant own " + `{"type":"text","text":" "}`},
	} {
		t.Run(name, func(t *testing.T) {
			stored, sent := listOf(t, c.stored), listOf(t, c.sent)
			before := jsonOf(t, stored) + jsonOf(t, sent)
			got := reconcile(stored, sent)
			sameJSON(t, "reconciled", jsonOf(t, got), jsonOf(t, listOf(t, c.want)))
			sameJSON(t, "and again", jsonOf(t, reconcile(got, got)), jsonOf(t, got))
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

// TestDeletes is of lists that are shorter than what is stored.
func TestDeletes(t *testing.T) {
	stored := listOf(t, "user u1 "+hello+"\nassistant a1 "+sure+"\nuser u2 "+hello+"\nassistant a2 "+sure)
	for ids, want := range map[string]string{
		"u1 a1 u2 a2": "",
		"u1 a1 u2":    "a2",
		"u1":          "a1 u2 a2",
		"u1 a1 u3":    "", // it may not know u2 and a2
		"":            "",
	} {
		var sent []Message
		for _, id := range strings.Fields(ids) {
			sent = append(sent, Message{ID: id, Role: User})
		}
		if got := strings.Join(deletes(stored, sent), " "); got != want {
			t.Errorf("%q removes %q, want %q", ids, got, want)
		}
	}
}
