package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/internal/transcript"
)

var update = flag.Bool("update", false, "rewrite what the server says in testdata/transcripts")

// transcripts are conversations. A line is an event, or (a>) a frame that a client sends; below it are (a<) the frames
// that its server then sends to each client, written by -update:
//
//	debounce                 the class answers when nothing has come for a while
//	a connects               and a is cut, and comes back by connecting again
//	model says 1.0 1.1       a chunk for each word
//	model calls stamp        and model stops, and model fails
//	model delegates count 5  a call that asks another agent, which has the same model
//	the incarnation ends
//	time passes              five seconds
const transcripts = "testdata/transcripts/*.txt"

// scriptedModel makes agents send the words in the lines of a transcript.
type scriptedModel struct {
	lines chan string
	calls int
}

// Stream is part of chat.Model.
func (p *scriptedModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	p.calls++
	id := fmt.Sprint(p.calls)
	return func(yield func(chat.Chunk, error) bool) {
		for {
			var line string
			select {
			case line = <-p.lines:
			case <-ctx.Done():
				return
			}
			verb, rest, _ := strings.Cut(line, " ")
			switch verb {
			case "says":
				for word := range strings.FieldsSeq(rest) {
					if !yield(chunk("text-delta", map[string]any{"id": id, "delta": word + " "}), nil) {
						return
					}
				}
			case "calls":
				yield(chunk("tool-input-available", map[string]any{"toolCallId": "call-" + id, "toolName": rest, "input": map[string]any{}}), nil)
			case "delegates":
				yield(chunk("tool-input-available", map[string]any{
					"toolCallId": "call-" + id, "toolName": "delegate", "input": map[string]any{"message": rest},
				}), nil)
			case "fails":
				yield(chat.Chunk{}, &dohost.PublicError{Message: "the model is out"})
				return
			case "stops":
				return
			}
		}
	}
}

func (p *scriptedModel) class(o chat.Options) dohost.Class {
	tools := []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "ask"}}, {
		ToolSpec: chat.ToolSpec{Name: "stamp"}, Approve: &chat.Approval{},
		Run: func(context.Context, json.RawMessage) (any, error) { return "stamped", nil },
	}, chat.AgentTool(countingAgents, "delegate", "", &chat.AgentToolOptions{
		To: func(context.Context, json.RawMessage) (string, error) { return "asked", nil },
	})}
	return countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, p, &chat.AnswerOptions{Tools: tools})
	}, Options: o})
}

// transcriptRun is the test environment of a conversation.
type transcriptRun struct {
	h     *dohosttest.Host
	model *scriptedModel
	ids   map[string]string // written forms of the ids made by the server

	mu       sync.Mutex                 // guards the rest
	sockets  map[string]*websocket.Conn // of connected clients
	received map[string][]string        // by client, since the last line
}

func (s *transcriptRun) connect(ctx context.Context, name string) error {
	serve := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { s.h.Host().ServeObject(w, q, testID) })
	ws, _, err := sockettest.Dial(ctx, serve, "/?_pk="+name)
	if err != nil {
		return err
	}
	ws.SetReadLimit(1 << 20)
	s.setSocket(name, ws)
	s.h.Client(func(ctx context.Context) error {
		for {
			_, data, err := ws.Read(ctx)
			if err != nil {
				s.record(name, ws, fmt.Sprintf("(closed %d)", websocket.CloseStatus(err)))
				return nil
			}
			s.record(name, ws, string(data))
		}
	})
	return nil
}

// setSocket records a client's connection, or nil, and returns the previous one.
func (s *transcriptRun) setSocket(name string, ws *websocket.Conn) (before *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.sockets[name]
	s.sockets[name] = ws
	return before
}

// record records a frame that a client receives over a connection, unless the connection was cut.
func (s *transcriptRun) record(name string, ws *websocket.Conn, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sockets[name] == ws {
		s.received[name] = append(s.received[name], what)
	}
}

var serverIDs = regexp.MustCompile(`(msg|cont)_[0-9A-Z]{26}|ask_[0-9a-f]{32}`)

// normalized returns a frame with names in place of the ids made by the server.
func (s *transcriptRun) normalized(f string) string {
	return serverIDs.ReplaceAllStringFunc(f, func(id string) string {
		if s.ids[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			n := 1
			for other := range s.ids {
				if strings.HasPrefix(other, kind) {
					n++
				}
			}
			s.ids[id] = fmt.Sprintf("%s-%d", kind, n)
		}
		return s.ids[id]
	})
}

// play executes a line, and returns the frames that the clients receive.
func (s *transcriptRun) play(ctx context.Context, line string) (heard []string, err error) {
	name, what, _ := strings.Cut(line, " ")
	switch {
	case strings.HasSuffix(name, ">"):
		for id, as := range s.ids {
			what = strings.ReplaceAll(what, `"`+as+`"`, `"`+id+`"`)
			what = strings.ReplaceAll(what, `"`+as+`\"`, `"`+id+`\"`)
		}
		s.mu.Lock()
		ws := s.sockets[strings.TrimSuffix(name, ">")]
		s.mu.Unlock()
		err = ws.Write(ctx, websocket.MessageText, []byte(what))
	case what == "connects":
		err = s.connect(ctx, name)
	case what == "is cut":
		err = s.setSocket(name, nil).CloseNow()
	case name == "model":
		select {
		case s.model.lines <- what:
		case <-time.After(time.Second):
			err = errors.New("the model is not asked")
		}
	case line == "the incarnation ends":
		s.h.Evict(testID, dohost.EndFence)
	case line == "time passes":
		s.h.Advance(5 * time.Second)
	default:
		err = errors.New("nobody knows how")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	s.h.Advance(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.received)) {
		for _, f := range s.received[name] {
			heard = append(heard, name+"< "+s.normalized(f))
		}
	}
	clear(s.received)
	return heard, nil
}

// transcriptFiles returns the transcripts, by file.
func transcriptFiles(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(transcripts)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	if len(all) != 13 {
		t.Errorf("%d transcripts", len(all))
	}
	return all
}

// TestTranscripts compares the frames that clients receive, in order, with the transcripts.
func TestTranscripts(t *testing.T) {
	for file, want := range transcriptFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			model, o := &scriptedModel{}, chat.Options{}
			if slices.Contains(want, "debounce") {
				o.Policy, o.Debounce = chat.PolicyDebounce, 5*time.Second
			}
			var got []string
			runWithHost(t, model.class(o), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				model.lines = make(chan string)
				s := &transcriptRun{h: h, model: model, sockets: map[string]*websocket.Conn{}, received: map[string][]string{}, ids: map[string]string{}}
				for _, line := range want {
					if name, _, _ := strings.Cut(line, " "); strings.HasSuffix(name, "<") {
						continue
					}
					got = append(got, line)
					if line == "" || line == "debounce" || strings.HasPrefix(line, "#") {
						continue
					}
					heard, err := s.play(ctx, line)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, heard...)
				}
				for _, name := range []string{"a", "b", "c"} {
					if ws := s.setSocket(name, nil); ws != nil {
						_ = ws.CloseNow() // it may be closed already
					}
				}
			})
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for i := range max(len(got), len(want)) {
				is, was := "(nothing)", "(nothing)"
				if i < len(got) {
					is = got[i]
				}
				if i < len(want) {
					was = want[i]
				}
				if is != was {
					t.Fatalf("line %d:\ngot  %s\nwant %s\n-update rewrites it", i+1, is, was)
				}
			}
		})
	}
}

// TestTranscriptsMatchRecordedClients compares the client frames in the transcripts with recordings of the published
// clients: both have the same kinds.
func TestTranscriptsMatchRecordedClients(t *testing.T) {
	text, err := os.ReadFile("../e2e/testdata/chat.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string][]string // by generation
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded) != 2 {
		t.Fatalf("%d generations: %v", len(recorded), err)
	}
	sent := map[string]bool{}
	for file, lines := range transcriptFiles(t) {
		for _, line := range lines {
			name, frame, _ := strings.Cut(line, " ")
			if !strings.HasSuffix(name, ">") {
				continue
			}
			frame = transcript.Frame(frame)
			sent[frame] = true
			for generation, frames := range recorded {
				if !slices.Contains(frames, frame) {
					t.Errorf("%s: clients of %s do not send %s", file, generation, line)
				}
			}
		}
	}
	for generation, frames := range recorded {
		for _, f := range frames {
			if !sent[f] {
				t.Errorf("no transcript has what clients of %s send: %s", generation, f)
			}
		}
	}
}
