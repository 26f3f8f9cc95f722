package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// without returns the view without members.
func (n *routed) without() *view {
	s := n.known.Load().Snapshot
	s.Members = nil
	return newView(&s)
}

// TestRequestToLostNodeEnds has an owner that answers nothing, or a part, and leaves the view.
func TestRequestToLostNodeEnds(t *testing.T) {
	cases := 0
	for _, tt := range []struct {
		request string
		begins  string // the response
		want    string
	}{
		{"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "", "HTTP/1.1 502 "},
		{"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", "HTTP/1.1 200 "},
		{"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 "},
	} {
		cases++
		silent := func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, tt.begins)
			_ = c.SetReadDeadline(time.Now().Add(24 * time.Hour))
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("%q: the connection between the nodes is still open: %v", tt.request, err)
			}
		}
		inMemory(t, silent, func(t *testing.T, node *routed, dial func() net.Conn) {
			go func() {
				time.Sleep(time.Second)
				node.learn(node.without())
			}()
			if got := answerOf(t, dial(), 31*time.Second, tt.request); !strings.HasPrefix(got, tt.want) || strings.Contains(got, " 502 ") && !strings.Contains(got, "unknown") {
				t.Errorf("%q: %q, want %q", tt.request, got, tt.want)
			}
			synctest.Wait()
			if left := len(node.inFlight.requests); left != 0 {
				t.Errorf("%q: %d requests are left", tt.request, left)
			}
		})
	}
	if cases != 3 {
		t.Errorf("%d cases", cases)
	}
}

// TestRequestToMemberIsNotEnded has an owner that is away for less than leaveTime, and answers a minute later.
func TestRequestToMemberIsNotEnded(t *testing.T) {
	slow := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Minute)
		_, _ = io.WriteString(w, "done")
	}
	inMemory(t, slow, func(t *testing.T, node *routed, dial func() net.Conn) {
		first := node.known.Load()
		go func() {
			time.Sleep(time.Second)
			node.learn(node.without())
			time.Sleep(leaveTime - 2*time.Second)
			node.learn(first)
		}()
		if got := answerOf(t, dial(), time.Hour, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "done") {
			t.Errorf("%q", got)
		}
	})
}

// readTable is a table without members.
type readTable struct{ Table }

func (readTable) Read(context.Context) (Snapshot, error) { return Snapshot{Revision: 1}, nil }

// TestTickEndsRequestsToLostNodes has two requests. One of them has moved to another node.
func TestTickEndsRequestsToLostNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{o: Options{Table: readTable{}, TTL: time.Minute}, self: Member{ID: "n"}, log: slog.New(slog.DiscardHandler), sent: time.Now()}
		n.known.Store(newView(&Snapshot{Members: []Member{{ID: "a", Address: "http://a"}}}))
		stays, moves := &target{id: "a"}, &target{id: "a"}
		first, end := n.inFlight.begin(t.Context(), stays)
		defer end()
		second, end := n.inFlight.begin(t.Context(), moves)
		defer end()
		n.inFlight.move(moves, "b", "http://b")
		if err := n.tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaveTime)
		synctest.Wait()
		if got := context.Cause(first); !errors.Is(got, errNoMember) {
			t.Errorf("the request to the node that is lost: %v", got)
		}
		if got := context.Cause(second); got != nil {
			t.Errorf("the request that has moved: %v", got)
		}
	})
}
