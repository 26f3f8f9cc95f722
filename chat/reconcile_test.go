package chat

import (
	"fmt"
	"slices"
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
			against, changed, err := differing(rowsOf(stored), sent)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "of what differs", byID(stored, reconcile(against, changed)), byID(stored, got))
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

// rowsOf are the rows of messages.
func rowsOf(ms []Message) map[string]messageRow {
	rows := map[string]messageRow{}
	for i, m := range ms {
		rows[m.ID] = messageRow{ID: m.ID, Place: uint64(i + 1), JSON: mustEncode(m)}
	}
	return rows
}

// byID is what is stored when some of it is put over the rest.
func byID(stored, put []Message) string {
	all := map[string]Message{}
	for _, m := range append(slices.Clone(stored), put...) {
		all[m.ID] = m
	}
	return string(mustEncode(all))
}

// A client sends all that it knows: what is stored as it is needs nothing.
func TestDiffering(t *testing.T) {
	long := "user u1 " + hello + "\nassistant a1 " + sure + "\nuser u2 " + hello + "\nassistant a2 " + callDone
	for sent, want := range map[string]string{
		long:                             "0 0",
		long + "\nuser u3 " + hello:      "0 1",
		long + "\nassistant a1 " + sure:  "4 5", // twice
		long + "\nassistant own " + sure: "4 5",
		"user u1 " + sure:                "1 1",
		"":                               "0 0",
	} {
		stored, changed, err := differing(rowsOf(listOf(t, long)), listOf(t, sent))
		if got := fmt.Sprint(len(stored), len(changed)); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", sent, got, want, err)
		}
	}
}

// TestDeletes is of lists that are shorter than what is stored.
func TestDeletes(t *testing.T) {
	stored := rowsOf(listOf(t, "user u1 "+hello+"\nassistant a1 "+sure+"\nuser u2 "+hello+"\nassistant a2 "+sure))
	for ids, want := range map[string]string{
		"u1 a1 u2 a2": "",
		"u1 a1 u2":    "a2",
		"u1":          "a1 a2 u2",
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
