package e2e

import (
	"encoding/json"
	"os"
	"testing"
)

// golden has the recordings of the wire, and goldenChat the clients' frames of a conversation, by their generation,
// sorted: their number and order vary.
const (
	golden     = "testdata/frames.json"
	goldenChat = "testdata/chat.json"
)

// exchange is an HTTP request and its answer. A WebSocket also has frames, each direction for itself: their order in
// time varies.
type exchange struct {
	Request string   `json:"request"`
	Body    string   `json:"body,omitempty"`
	Status  int      `json:"status"`
	Answer  string   `json:"answer,omitempty"`
	Up      []string `json:"up,omitempty"`   // from the client
	Down    []string `json:"down,omitempty"` // from the server
}

// recording is the exchanges of a case, and the clients that make them.
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
