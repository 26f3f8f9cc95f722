//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// listener is a client of the assistant. What it is shown of an answer is made of frames alone.
type listener struct {
	t       *testing.T
	ws      *websocket.Conn
	text    string
	message string
	next    uint64
	asked   bool // for what was said, over this connection
	caught  bool // has been shown it
	replay  strings.Builder
	done    string // the outcome
}

const question = "What happens to an object when it is evicted, and what survives?"

// listen connects to the assistant, and asks whether there is something to catch up with.
func listen(t *testing.T, v *victim, l *listener) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if l.ws, _, err = websocket.Dial(ctx, strings.Replace(v.objects, "http", "ws", 1)+"/agents/assistant/a", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.ws.CloseNow() })
	l.asked = false
	l.say(map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "p"})
}

func (l *listener) say(f map[string]any) {
	l.t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.ws.Write(l.t.Context(), websocket.MessageText, data); err != nil {
		l.t.Fatal(err)
	}
}

func (l *listener) ask(id string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"messages":[{"id":"u-%s","role":"user","parts":[{"type":"text","text":%q}]}]}`, id, question)
	l.say(map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": map[string]any{"method": "POST", "body": body}})
}

// hear takes a frame, and wants what was shown of the answer to grow.
func (l *listener) hear() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	_, data, err := l.ws.Read(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	var f struct {
		Type, ID, Body, Outcome      string
		Done, Replay, ReplayComplete bool
		Seq                          *uint64
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return // of another type
	}
	switch {
	case f.Type == "cf_agent_stream_resuming" && !l.asked: // it is told so when it comes, and when it asks
		l.asked = true
		l.replay.Reset()
		l.say(map[string]any{"type": "cf_agent_stream_resume_ack", "id": f.ID})
	case f.Type != "cf_agent_use_chat_response":
	case f.ReplayComplete:
		if !strings.HasPrefix(l.replay.String(), l.text) {
			l.t.Fatalf("a replay says %q of %q", l.replay.String(), l.text)
		}
		l.text, l.caught = l.replay.String(), true
	case f.Done:
		l.done = f.Outcome
	default:
		l.chunk(f.Body, f.Replay, *f.Seq)
	}
}

func (l *listener) chunk(body string, replay bool, seq uint64) {
	l.t.Helper()
	var c struct{ Type, Delta, MessageID string }
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		l.t.Fatal(err)
	}
	if c.MessageID != "" && l.message != "" && c.MessageID != l.message {
		l.t.Fatalf("message %s is %s now", l.message, c.MessageID)
	}
	if c.MessageID != "" {
		l.message = c.MessageID
	}
	if !replay && seq != l.next {
		l.t.Fatalf("chunk %d instead of %d", seq, l.next)
	}
	l.next = seq + 1
	if replay {
		l.replay.WriteString(c.Delta)
	} else {
		l.text += c.Delta
	}
}

// transcript is what a page fetches: role and text of each message.
func transcript(t *testing.T, v *victim) (lines []string) {
	t.Helper()
	res, err := v.client.Get(v.objects + "/agents/assistant/a/get-messages")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list []struct {
		Role  string
		Parts []struct{ Text string }
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	for _, m := range list {
		line := m.Role + ":"
		for _, p := range m.Parts {
			line += p.Text
		}
		lines = append(lines, line)
	}
	return lines
}

// TestAnAnswerGoesOnAfterSIGKILL kills the server in the middle of a sentence, as often as words are
// listed: so many more are heard before each. It comes back without a request, and two clients come back
// to it: the text is that of an answer that nobody has killed.
func TestAnAnswerGoesOnAfterSIGKILL(t *testing.T) {
	t.Parallel()
	_, whole := answered(t, nil)
	if len(strings.Fields(whole)) < 20 {
		t.Fatalf("too short to be cut: %q", whole)
	}
	for name, words := range map[string][]int{"in the middle": {8}, "before the first word": {0}, "three times": {3, 3, 3}} {
		t.Run(name, func(t *testing.T) {
			l, got := answered(t, words)
			if got != whole {
				t.Errorf("got  %q\nwant %q", got, whole)
			}
			t.Logf("%d kills, %d chunks in the log", len(words), l.next)
		})
	}
}

// answered has an answer given by one process after the other, and returns its text.
func answered(t *testing.T, words []int) (*listener, string) {
	t.Helper()
	bin, data := asDohost(t), filepath.Join(t.TempDir(), "data")
	v := serveVictim(t, bin, data)
	l, late := &listener{t: t}, &listener{t: t}
	listen(t, v, l)
	l.ask("one")
	for i, n := range words {
		for before := len(strings.Fields(l.text)); len(strings.Fields(l.text)) < before+n || n == 0 && l.message == ""; {
			l.hear()
		}
		killed(t, v)
		v = serveVictim(t, bin, data)
		listen(t, v, l)
		if i == len(words)-1 {
			listen(t, v, late)
			for !late.caught {
				late.hear()
			}
		}
	}
	for l.done == "" {
		l.hear()
	}
	if len(words) > 0 {
		for late.done == "" {
			late.hear()
		}
		if late.text != l.text || late.message != l.message {
			t.Errorf("the one who came late has heard %q, not %q", late.text, l.text)
		}
	}
	lines := transcript(t, v)
	if len(lines) != 2 || lines[0] != "user:"+question || lines[1] != "assistant:"+l.text || l.done != "completed" {
		t.Errorf("%q, %s; heard %q", lines, l.done, l.text)
	}
	killed(t, v)
	wantSound(t, bin, data)
	return l, l.text
}

// killed ends the process as a power cut would, but for what the system still has.
func killed(t *testing.T, v *victim) {
	t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = v.cmd.Wait() // "signal: killed"
}
