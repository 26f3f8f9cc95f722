package inbox_test

import (
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/inbox"
)

// TestAgentNameIsUniqueInClass declares two agents with one name over two collections.
func TestAgentNameIsUniqueInClass(t *testing.T) {
	notes := inbox.Messages("notes", nil)
	of := func(name string, rows *dohost.Collection[inbox.Message]) agent.Entry[desk] {
		return inbox.On(inbox.ForMessages[desk](rows, &inbox.Agent{Name: name, Model: &answerModel{}}))
	}
	for name, want := range map[string]string{
		"clerk": `two of the agent "clerk" in one class: an inbox over the collection "messages", and an inbox over the collection "notes"`,
		"cook":  "",
	} {
		h, err := dohost.Open(t.TempDir(), nil, deskClass(of("clerk", &messages), inbox.On(ticketInbox()), of(name, &notes)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err == nil {
			err = h.Close()
		}
		if want == "" && err != nil {
			t.Error(err)
		}
	}
}
