//go:build unix

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
)

var sockets = flag.Int("sockets", 1000, "clients with a durable socket of one object")

const (
	speakers = 4                      // of the clients
	speech   = 200 * time.Millisecond // between the answer to a frame and the next one
)

// audience is the clients of a hall, all connected to one node.
type audience struct {
	t       *testing.T
	clients []*listener
	sent    atomic.Int64
}

// listener is a client. A goroutine reads its frames.
type listener struct {
	ws    *websocket.Conn
	heard atomic.Int64 // the number of the last frame
	own   chan string  // the texts of its own frames
	done  chan error   // yields the end of the connection, or the first fault

	// Of its goroutine, until done.
	last    time.Time
	longest time.Duration // between two frames
}

// join connects the clients.
func join(t *testing.T, at, hall string) *audience {
	t.Helper()
	a := &audience{t: t, clients: make([]*listener, *sockets)}
	var connecting sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range a.clients {
		connecting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			url := strings.Replace(at, "http", "ws", 1) + "/objects/hall/" + hall + "/http/"
			ws, _, err := websocket.Dial(t.Context(), url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			l := &listener{ws: ws, own: make(chan string, 1), done: make(chan error, 1), last: time.Now()}
			a.clients[i] = l
			go func() { l.done <- l.listen(t.Context(), i) }()
		})
	}
	connecting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return a
}

// listen reads the frames of client i until the connection ends. They must have the numbers from 1 on.
func (l *listener) listen(ctx context.Context, i int) error {
	for {
		_, data, err := l.ws.Read(ctx)
		if err != nil {
			return err
		}
		var f told
		if err := json.Unmarshal(data, &f); err != nil {
			return err
		}
		if want := int(l.heard.Load()) + 1; f.Number != want {
			return fmt.Errorf("frame %d after frame %d", f.Number, want-1)
		}
		now := time.Now()
		l.longest, l.last = max(l.longest, now.Sub(l.last)), now
		l.heard.Add(1)
		if speaker, _, _ := strings.Cut(f.Text, " "); speaker == fmt.Sprint(i) {
			l.own <- f.Text
		}
	}
}

// speak has the first clients send frames, each after it has heard its former one, until stop is closed.
func (a *audience) speak(stop <-chan struct{}) (wait func()) {
	var speaking sync.WaitGroup
	for i, l := range a.clients[:speakers] {
		speaking.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(speech):
				}
				text := fmt.Sprint(i, " ", n)
				a.sent.Add(1)
				if err := l.ws.Write(a.t.Context(), websocket.MessageText, []byte(text)); err != nil {
					a.t.Errorf("client %d: %v", i, err)
					return
				}
				select {
				case got := <-l.own:
					if got != text {
						a.t.Errorf("client %d hears %q after %q", i, got, text)
					}
				case err := <-l.done:
					a.t.Errorf("client %d: %v", i, err)
					return
				case <-time.After(longestWait):
					a.t.Errorf("client %d does not hear its frame", i)
					return
				}
			}
		})
	}
	return speaking.Wait
}

// finish checks that every client has heard all frames, and closes the connections.
func (a *audience) finish() {
	a.t.Helper()
	all := a.sent.Load()
	for i, l := range a.clients {
		for limit := time.Now().Add(longestWait); l.heard.Load() < all && len(l.done) == 0; {
			pause(a.t, limit, fmt.Sprintf("client %d, which has heard %d of %d frames,", i, l.heard.Load(), all))
		}
	}
	for i, l := range a.clients {
		if len(l.done) > 0 {
			a.t.Errorf("client %d, which has heard %d of %d frames: %v", i, l.heard.Load(), all, <-l.done)
			continue
		}
		_ = l.ws.Close(websocket.StatusNormalClosure, "") // the object counts too few if it fails
		<-l.done
	}
}

// pauses returns the shortest and the longest one of the longest pauses of the clients, after finish.
func (a *audience) pauses() (shortest, longest time.Duration) {
	var all []time.Duration
	for _, l := range a.clients {
		all = append(all, l.longest)
	}
	slices.Sort(all)
	return all[0].Round(10 * time.Millisecond), all[len(all)-1].Round(10 * time.Millisecond)
}

// TestSocketsSurviveTheirOwner kills the owner of an object with a thousand clients, which are connected to another node, and then moves the
// object by ending its node. All connections stay open, and each client gets each frame once and in order.
func TestSocketsSurviveTheirOwner(t *testing.T) {
	t.Parallel()
	c := newNodes(t, "hall")
	for i := range 3 {
		c.join(i, t.TempDir())
	}
	c.awaitBalance()
	name, cell := "", 0
	for i := 0; name == "" || c.ownerOf(cell) != 0; i++ {
		name = fmt.Sprint("h", i)
		cell = cluster.CellOf(dohost.ID{Class: string(halls), Name: name}, cells)
	}
	a := join(t, c.list[1].at, name)
	stop := make(chan struct{})
	wait := a.speak(stop)
	after := func(frames int64) {
		for limit, want := time.Now().Add(clusterTime), a.clients[0].heard.Load()+frames; a.clients[0].heard.Load() < want; {
			pause(t, limit, "a frame")
		}
	}
	after(20)
	data := c.list[0].data
	c.leave(0).signal(syscall.SIGKILL)
	after(20)
	c.join(0, data)
	c.awaitBalance()
	after(20)
	if owner := c.ownerOf(cell); owner != 1 {
		n := c.leave(owner)
		n.signal(syscall.SIGINT)
		if err := n.cmd.Wait(); err != nil {
			t.Errorf("the node has ended with %v:\n%s", err, &n.errors)
		}
	} else {
		t.Log("the node of the clients is the owner")
	}
	after(20)
	close(stop)
	wait()
	a.finish()
	shortest, longest := a.pauses()
	t.Logf("%d clients have heard %d frames each; the longest pause of a client: %v to %v", len(a.clients), a.sent.Load(), shortest, longest)
	within(t, "the longest pause of a client", longest, socketGapLimit)
	for limit := time.Now().Add(clusterTime); ; pause(t, limit, "the end of the sockets") {
		var left [2]int
		_, err := call(t.Context(), http.DefaultClient, c.list[1].at+"/objects/hall/"+name+"/left", struct{}{}, &left)
		if err == nil && left == [2]int{len(a.clients), 0} {
			break
		}
		if err == nil && left[0] > len(a.clients) {
			t.Fatalf("%d sockets have ended", left[0])
		}
	}
}
