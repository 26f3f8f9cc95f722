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
	"time"

	"github.com/coder/websocket"
)

// chatClient is a client of a chat agent. Its text of an answer is built from frames alone.
type chatClient struct {
	t       *testing.T
	at      string // class and name of the agent
	ws      *websocket.Conn
	of      string // request of the text
	text    string
	message string
	next    uint64
	asked   bool // for the text so far, over this connection
	resumed bool // has received it, over this connection
	none    int  // how often there was no answer in progress, over this connection
	replay  strings.Builder
	done    string // the outcome of the last answer

	ends       map[string]ending // by request
	call       string            // of a tool, the last
	replayed   int               // chunks received again
	recovering int               // number of frames about recovery
	runs       int               // of the handler, as the processes have logged
}

// ending is the end of an answer for a client.
type ending struct {
	Outcome, Body string
	MessageIDs    []string
}

// assistantA is the agent that is asked.
const assistantA = "assistant/a"

func newChatClient(t *testing.T, at string) *chatClient {
	return &chatClient{t: t, at: at, ends: map[string]ending{}}
}

const question = "What happens to an object when it is evicted, and what survives?"

// connectClient connects to the agent, and asks for an answer in progress.
func connectClient(t *testing.T, v *serverProcess, l *chatClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
	defer cancel()
	var err error
	if l.ws, _, err = websocket.Dial(ctx, strings.Replace(v.objects, "http", "ws", 1)+"/agents/"+l.at, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.ws.CloseNow() })
	l.asked, l.resumed, l.none = false, false, 0
	l.send(map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "p"})
}

func (l *chatClient) send(f map[string]any) {
	l.t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.ws.Write(l.t.Context(), websocket.MessageText, data); err != nil {
		l.t.Fatal(err)
	}
}

func (l *chatClient) ask(id, text, more string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"messages":[{"id":"u-%s","role":"user","parts":[{"type":"text","text":%q}]}]%s}`, id, text, more)
	l.send(map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": map[string]any{"method": "POST", "body": body}})
}

// receive reads a frame, and expects the text of the answer to grow.
func (l *chatClient) receive() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), scriptTimeout)
	defer cancel()
	_, data, err := l.ws.Read(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	var f struct {
		ending
		Type, ID                                 string
		Done, Replay, ReplayComplete, Recovering bool
		Seq                                      *uint64
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return // of another type
	}
	if f.Type == "cf_agent_use_chat_response" && !f.Done && f.ID != l.of {
		l.of, l.text, l.message, l.next = f.ID, "", "", 0
	}
	switch {
	case f.Type == "cf_agent_stream_resuming" && !l.asked: // sent when it connects, and when it asks
		l.asked = true
		l.replay.Reset()
		l.send(map[string]any{"type": "cf_agent_stream_resume_ack", "id": f.ID})
	case f.Type == "cf_agent_stream_resume_none":
		l.none++
	case f.Type == "cf_agent_chat_recovering" && f.Recovering:
		l.recovering++
	case f.Type != "cf_agent_use_chat_response":
	case f.Done:
		l.done, l.ends[f.ID] = f.Outcome, f.ending
	case f.ReplayComplete:
		if !strings.HasPrefix(l.replay.String(), l.text) {
			l.t.Fatalf("a replay says %q of %q", l.replay.String(), l.text)
		}
		l.text, l.resumed = l.replay.String(), true
	default:
		l.chunk(f.Body, f.Replay, *f.Seq)
	}
}

func (l *chatClient) chunk(body string, replay bool, seq uint64) {
	l.t.Helper()
	var c struct{ Type, Delta, MessageID, ToolCallID string }
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
	if c.ToolCallID != "" {
		l.call = c.ToolCallID
	}
	if replay {
		l.replayed++
		l.replay.WriteString(c.Delta)
	} else {
		l.text += c.Delta
	}
}

// transcript fetches the conversation like a page: role and text of each message.
func transcript(t *testing.T, v *serverProcess, at string) (lines []string) {
	t.Helper()
	res, err := v.client.Get(v.objects + "/agents/" + at + "/get-messages")
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

// TestChatAnswerResumesAfterSIGKILL kills the server in the middle of a sentence, once for each entry of words,
// which is the number of words that the client reads before. The server restarts without a request, and two clients reconnect to it:
// the text is that of an uninterrupted answer.
func TestChatAnswerResumesAfterSIGKILL(t *testing.T) {
	t.Parallel()
	_, whole := answerOverKills(t, nil)
	if len(strings.Fields(whole)) < 20 {
		t.Fatalf("too short to be cut: %q", whole)
	}
	for name, words := range map[string][]int{"in the middle": {8}, "before the first word": {0}, "three times": {3, 3, 3}} {
		t.Run(name, func(t *testing.T) {
			l, got := answerOverKills(t, words)
			if got != whole {
				t.Errorf("got  %q\nwant %q", got, whole)
			}
			t.Logf("%d kills, %d runs of the handler, %d chunks in the log, %d frames that showed them again",
				len(words), l.runs, l.next, l.replayed)
			if l.runs != len(words)+1 {
				t.Errorf("%d runs of the handler", l.runs)
			}
		})
	}
}

// answerOverKills runs an answer over several processes, and returns its text.
func answerOverKills(t *testing.T, words []int) (*chatClient, string) {
	t.Helper()
	bin, data := dohostProgram(t), filepath.Join(t.TempDir(), "data")
	v := startProcess(t, bin, data)
	l, late := newChatClient(t, assistantA), newChatClient(t, assistantA)
	connectClient(t, v, l)
	l.ask("one", question, "")
	for i, n := range words {
		for before := len(strings.Fields(l.text)); len(strings.Fields(l.text)) < before+n || n == 0 && l.message == ""; {
			l.receive()
		}
		l.runs += strings.Count(killProcess(t, v), "chat:interrupted")
		v = startProcess(t, bin, data)
		connectClient(t, v, l)
		if i == len(words)-1 {
			connectClient(t, v, late)
			late.receiveUntil(func() bool { return late.resumed })
		}
	}
	l.receiveUntil(func() bool { return l.done != "" })
	lines := transcript(t, v, assistantA)
	if len(words) > 0 && !l.resumed {
		l.text, l.done = strings.TrimPrefix(lines[len(lines)-1], "assistant:"), "completed"
	}
	if len(words) > 0 {
		if late.receiveUntil(func() bool { return late.done != "" }); late.resumed && (late.text != l.text || late.message != l.message) {
			t.Errorf("the one who came late has heard %q, not %q", late.text, l.text)
		}
	}
	if len(lines) != 2 || lines[0] != "user:"+question || lines[1] != "assistant:"+l.text || l.done != "completed" {
		t.Errorf("%q, %s; heard %q", lines, l.done, l.text)
	}
	l.runs += 1 + strings.Count(killProcess(t, v), "chat:interrupted")
	wantConsistent(t, bin, data)
	return l, l.text
}

// receiveUntil reads until a condition holds, or until the answer has ended without this client. That happens on a slow machine, between
// the start of the server and the connection: then there is no answer in progress, however often the client asks.
func (l *chatClient) receiveUntil(holds func() bool) {
	l.t.Helper()
	for asked := l.none; !holds() && l.none < 50; {
		if l.receive(); l.none > asked && !l.asked {
			<-time.After(100 * time.Millisecond)
			asked = l.none
			l.send(map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "p"})
		}
	}
}

// killProcess ends the process like a power cut, except that the system keeps its caches, and returns its log.
func killProcess(t *testing.T, v *serverProcess) (log string) {
	t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	log = v.logged()
	_ = v.cmd.Wait() // "signal: killed"
	return log
}
