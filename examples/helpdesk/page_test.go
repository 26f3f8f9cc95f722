package helpdesk_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/examples/helpdesk"
	"github.com/dohost/dohost/inbox"
)

// now is a model that answers immediately with a function of the last message.
type now func(text string) string

func (m now) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		yield(chat.TextDelta("t", m(p.Messages[len(p.Messages)-1].PlainText())), nil)
	}
}

// TestPage reads the page, sends a message to one of the two agents, and watches the room until the response is there.
func TestPage(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), nil, helpdesk.RoomClass(now(strings.ToUpper)))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeObject(w, r, helpdesk.Rooms.Get(h, "eu").ID())
	}))
	defer server.Close()
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if res.Body.Close(); err != nil || !strings.Contains(string(text), "<option>network</option>") || strings.Contains(string(text), "src=") {
		t.Errorf("the page is %s, %v", text, err)
	}
	watch, err := http.Get(server.URL + "?watch")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	for _, c := range []struct {
		to, kind, body string
		status         int
	}{
		{"eve", "application/json", `"hello"`, 400},
		{"network", "text/plain", `"hello"`, 400},
		{"network", "application/json", `""`, 400},
		{"network", "application/json", `"` + strings.Repeat("x", 5000) + `"`, 400},
		{"network", "application/json", `"hello"`, 202},
	} {
		res, err := http.Post(server.URL+"?to="+c.to, c.kind, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != c.status {
			t.Errorf("a message to %s: %d, want %d", c.to, res.StatusCode, c.status)
		}
	}
	contents := map[string]inbox.Message{}
	for lines := bufio.NewScanner(watch.Body); len(contents) < 2 && lines.Scan(); {
		var row struct{ Value inbox.Message }
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if ok && json.Unmarshal([]byte(data), &row) == nil && row.Value.Content != "" {
			contents[row.Value.Content] = row.Value
		}
	}
	asked, answered := contents["hello"], contents["HELLO"]
	if asked.From != "visitor" || asked.To != "network" || answered.From != "network" || answered.To != "visitor" {
		t.Errorf("the messages are %+v", contents)
	}
}
