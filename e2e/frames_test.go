package e2e

import (
	"encoding/json"
	"os"
	"testing"
)

// golden holds what was recorded on the wire, and goldenChat what clients send in a conversation, by their
// generation, sorted: how often, and when, is not the same each time.
const (
	golden     = "testdata/frames.json"
	goldenChat = "testdata/chat.json"
)

// exchange is an HTTP request and its answer. If that is a WebSocket it goes on with frames,
// each direction for itself: how they lie in time is not the same each time.
type exchange struct {
	Request string   `json:"request"`
	Body    string   `json:"body,omitempty"`
	Status  int      `json:"status"`
	Answer  string   `json:"answer,omitempty"`
	Up      []string `json:"up,omitempty"`   // from the client
	Down    []string `json:"down,omitempty"` // from the server
}

// recording is what a case puts on the wire, and with which clients it does.
type recording struct {
	Case    string     `json:"case"`
	Clients []string   `json:"clients"`
	Wire    []exchange `json:"wire"`
}

func readGolden(t *testing.T) (all []recording) {
	t.Helper()
	readJSON(t, golden, &all)
	return all
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}
