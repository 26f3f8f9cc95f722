package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// TestLeaveWaitsForPassedOnRequests has a request on the listener that no host of the node handles.
func TestLeaveWaitsForPassedOnRequests(t *testing.T) {
	for _, tt := range []struct {
		grace, takes time.Duration
		answered     bool
	}{{30 * time.Second, 25 * time.Second, true}, {30 * time.Second, 35 * time.Second, false}, {0, time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			o := &cluster.Options{
				Table: &memoryCells{}, TTL: time.Minute, Cells: 2, Secret: []byte("0123456789abcdef"), Advertise: "http://node",
				Log:  func(context.Context, int) (sharedlog.Log, error) { return &logtest.Log{}, nil },
				Open: func(int, sharedlog.Lease, dohost.Remote) (cluster.Host, error) { return nil, errors.New("not opened") },
			}
			node, err := cluster.Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			leaving := make(chan struct{})
			s := &server{log: slog.New(slog.DiscardHandler), served: make(chan error, 1)}
			s.public = s.newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-leaving
				time.Sleep(tt.takes)
				_, _ = io.WriteString(w, "done")
			}))
			pipes := sockettest.NewPipes()
			go s.serve(s.public, pipes)
			client := pipes.Dial()
			answer := make(chan string, 1)
			go func() {
				_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				b, _ := io.ReadAll(client) // cut if it is late
				answer <- string(b)
			}()
			synctest.Wait()
			close(leaving)
			if err := s.leave(t.Context(), node, tt.grace); err != nil {
				t.Error(err)
			}
			if got := <-answer; strings.HasSuffix(got, "done") != tt.answered {
				t.Errorf("%+v: %q", tt, got)
			}
			time.Sleep(tt.takes) // until the handler has ended
		})
	}
}
