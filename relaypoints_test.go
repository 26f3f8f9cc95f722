package dohost_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// relayPoints is a scenario with an edge and two sockets.
type relayPoints struct {
	edge   *memoryEdge
	a, b   *edgeSocket
	closed []string
	links  int // of all runs, in addition to the first of each
}

func (p *relayPoints) run(ctx context.Context, h *dohosttest.Host) (err error) {
	p.edge = newMemoryEdge("edge", tallies.Get(h, "x").ID(), h.Host)
	for _, s := range []**edgeSocket{&p.a, &p.b} {
		if *s, err = p.edge.connect(ctx, "/?tag=t"); err != nil {
			return err
		}
	}
	for i, s := range []*edgeSocket{p.a, p.b, p.a, p.b} {
		frame := []string{"attach", "plain", "plain", "bye"}[i]
		if err := p.ask(ctx, s, frame, i+1); err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}
	if err := p.edge.wait(ctx, func() bool { return p.b.closing != nil }); err != nil {
		return fmt.Errorf("the closing frame: %w", err)
	}
	return p.edge.send(ctx, p.b, dohost.LinkInput{Closing: p.b.closing})
}

// ask sends a frame, and sends it again if the disk was full for its handler: after a minute, the socket does not have n frames.
func (p *relayPoints) ask(ctx context.Context, s *edgeSocket, frame string, n int) error {
	for {
		before := len(p.closed)
		if err := p.edge.send(ctx, s, text(frame)); err != nil {
			return err
		}
		begun, answered := time.Now(), false
		err := p.edge.wait(ctx, func() bool {
			answered = len(s.frames) >= n
			return answered || time.Since(begun) > time.Minute
		})
		if err != nil || answered {
			return err
		}
		if !slices.Contains(p.closed[before:], "no space") {
			return fmt.Errorf("no answer within a minute, and the handler has not failed")
		}
	}
}

func (p *relayPoints) check(ctx context.Context, h *dohosttest.Host) error {
	want := []string{"1 attach new", "2 plain new", "3 plain attached", "4 bye new"}
	for i, s := range []*edgeSocket{p.a, p.b} {
		if !slices.Equal(s.frames, want) || s.gone {
			return fmt.Errorf("socket %d has the frames %q, gone %v, want %q", i, s.frames, s.gone, want)
		}
	}
	if p.b.closing == nil || p.b.closing.Code != 3000 {
		return fmt.Errorf("socket b has the closing frame %v", p.b.closing)
	}
	if !slices.IsSortedFunc(p.edge.position, func(a, b string) int {
		if a < b {
			return -1
		}
		return 1
	}) {
		return fmt.Errorf("the positions are not in order: %v", p.edge.position)
	}
	return tallies.Get(h, "x").Do(ctx, func(ctx context.Context, t *tally) error {
		n, _, err := dohost.Get[int](ctx, t.st.Storage(), "count")
		if err == nil && n != len(want) {
			err = fmt.Errorf("the object has counted %d frames", n)
		}
		if all := t.st.Sockets("t"); err == nil && (len(all) != 1 || string(all[0].Attachment()) != "attached") {
			err = fmt.Errorf("the object has %d sockets", len(all))
		}
		return err
	})
}

// TestRelayAtEveryPoint ends incarnations and processes, and lets another process take over the log, while two durable sockets send and
// receive frames: each arrives once and in order, in both directions.
func TestRelayAtEveryPoint(t *testing.T) {
	p := &relayPoints{}
	s := dohosttest.Scenario{
		Classes: []dohost.Class{tallyClass(&p.closed, &dohost.Handlers[tally]{})},
		Reset:   func() { *p = relayPoints{links: p.links} },
		Run:     p.run,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			p.links += p.edge.links - 1
			return p.check(ctx, h)
		},
		SharedLog: true,
		FullDisk:  true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 60, 40))
	if p.links == 0 {
		t.Error("no link was made again")
	}
}
