//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// roomClient is a client in a room of a running server.
type roomClient struct {
	t  *testing.T
	ws *websocket.Conn
}

func enterRoom(t *testing.T, v *serverProcess, query string) *roomClient {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(v.objects, "http", "ws", 1)+"/agents/room/lobby?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &roomClient{t, ws}
}

// receive reads frames until one of a type arrives, and returns it.
func (g *roomClient) receive(kind string) string {
	g.t.Helper()
	for {
		_, data, err := g.ws.Read(g.t.Context())
		if err != nil {
			g.t.Fatalf("no %s: %v", kind, err)
		}
		var f struct {
			Type string
			Who  []string
			Line struct {
				Number    int
				Who, Text string
			}
			State  struct{ Topic string }
			Result json.RawMessage
		}
		if json.Unmarshal(data, &f) != nil || f.Type != kind {
			continue
		}
		switch kind {
		case "who":
			return fmt.Sprint(f.Who)
		case "line":
			return fmt.Sprintf("%d %s: %s", f.Line.Number, f.Line.Who, f.Line.Text)
		case "cf_agent_state":
			return f.State.Topic
		}
		return string(f.Result)
	}
}

func (g *roomClient) send(text string) {
	g.t.Helper()
	if err := g.ws.Write(g.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		g.t.Fatal(err)
	}
}

func (g *roomClient) want(kind, what string) {
	g.t.Helper()
	if got := g.receive(kind); got != what {
		g.t.Errorf("%s: %s, want %s", kind, got, what)
	}
}

// TestRoomAfterSIGKILL uses the room, kills the server, and reconnects.
func TestRoomAfterSIGKILL(t *testing.T) {
	t.Parallel()
	bin, data := dohostProgram(t), filepath.Join(t.TempDir(), "data")
	v := startProcess(t, bin, data)
	ada, bob := enterRoom(t, v, "name=ada&_pk=a"), enterRoom(t, v, "name=bob&_pk=b")
	ada.want("cf_agent_state", "anything")
	ada.want("who", "[ada]")
	ada.want("who", "[ada bob]")
	bob.want("who", "[ada bob]")
	bob.send("hello")
	bob.send(`{"type":"cf_agent_state","state":{"topic":"tea"}}`)
	ada.want("line", "1 bob: hello")
	ada.want("cf_agent_state", "tea")
	if _, _, err := enterRoom(t, v, "name=").ws.Read(t.Context()); websocket.CloseStatus(err) != 4000 {
		t.Error(err)
	}
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = v.logged()
	v = startProcess(t, bin, data)
	bob = enterRoom(t, v, "name=bob&_pk=b")
	bob.want("cf_agent_state", "tea")
	bob.want("who", "[bob]") // ada has not reconnected
	bob.send("again")
	bob.want("line", "2 bob: again")
	bob.send(`{"type":"rpc","id":"1","method":"lines","args":[1]}`)
	if got := bob.receive("rpc"); !strings.Contains(got, `"again"`) || strings.Contains(got, "hello") {
		t.Error(got)
	}
}

// TestResearchAfterSIGKILL runs the built-in agents on the project's documents, in a server that is killed
// during the job.
func TestResearchAfterSIGKILL(t *testing.T) {
	t.Parallel()
	bin, data := dohostProgram(t), filepath.Join(t.TempDir(), "data")
	v := startProcess(t, bin, data, "--chaos-evict", "0.001")
	var files int
	v.retry("POST", v.objects+"/objects/catalog/main/begin", "", &files)
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = v.logged()
	v = startProcess(t, bin, data)
	for read := 0; read < files; { // poll the catalog, not the readers, and leave them the processor
		<-time.After(20 * time.Millisecond)
		v.retry("POST", v.objects+"/objects/catalog/main/read", "", &read)
	}
	want, err := countDirectly((&demoCmd{}).files(&demoPlan{}))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i := range (files + 3) / 4 {
		var totals map[string]int
		v.retry("POST", fmt.Sprintf("%s/objects/research/%d/totals", v.objects, i), "", &totals)
		for _, n := range totals {
			total += n
		}
	}
	if total != want.total {
		t.Errorf("%d words, want %d", total, want.total)
	}
}
