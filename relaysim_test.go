package dohost_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// relaySim has the edges of a simulation, and the ended ones.
type relaySim struct {
	mu     sync.Mutex
	host   func() *dohost.Host
	edges  [3]*memoryEdge
	busy   [3]bool
	last   int // number of the last edge
	former []*memoryEdge
	texts  map[*edgeSocket]int // the frames that a client has sent
	frames int                 // that all clients have got, in all runs
	closed []string
}

// use calls f with an edge that no other client uses.
func (s *relaySim) use(h *dohosttest.Host, r *rand.Rand, f func(e *memoryEdge) error) error {
	i := r.IntN(len(s.edges))
	s.mu.Lock()
	s.host = h.Host
	for n := 0; s.busy[i] && n < len(s.edges); n++ {
		i = (i + 1) % len(s.edges)
	}
	s.busy[i] = true
	if s.edges[i] == nil {
		s.last++
		s.edges[i] = newMemoryEdge(fmt.Sprint("edge", s.last), tallies.Get(h, "x").ID(), h.Host)
	}
	e := s.edges[i]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[i] = false
	}()
	if err := f(e); !errors.Is(err, errInVain) {
		return err
	}
	return dohost.ErrClosed // a host is down for hours after its store has failed; the check waits for the rest
}

// pick returns a socket of an edge that is open, or a new one.
func (s *relaySim) pick(ctx context.Context, e *memoryEdge, r *rand.Rand) (*edgeSocket, error) {
	e.mu.Lock()
	var open []*edgeSocket
	for number := uint64(1); number < e.next; number++ {
		if c := e.sockets[number]; c != nil && !c.gone && !c.ended && c.closing == nil {
			open = append(open, c)
		}
	}
	e.mu.Unlock()
	if len(open) == 0 || len(open) < 3 && r.IntN(3) == 0 {
		return e.connect(ctx, "/")
	}
	return open[r.IntN(len(open))], nil
}

func (s *relaySim) say(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
	return s.use(h, r, func(e *memoryEdge) error {
		c, err := s.pick(ctx, e, r)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.texts[c]++
		text := fmt.Sprintf("%s/%d:%d", e.name, c.number, s.texts[c])
		s.mu.Unlock()
		return e.send(ctx, c, dohost.LinkInput{Frame: dohost.Frame{Text: true, Data: []byte(text)}})
	})
}

// command sends a frame that makes the object do something: bye closes the socket.
func (s *relaySim) command(word string) func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
	return func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
		return s.use(h, r, func(e *memoryEdge) error {
			c, err := s.pick(ctx, e, r)
			if err == nil {
				err = e.send(ctx, c, text(word))
			}
			if err != nil || word != "bye" {
				return err
			}
			if err := e.wait(ctx, func() bool { return c.closing != nil || c.gone }); err != nil || c.gone {
				return err
			}
			return e.send(ctx, c, dohost.LinkInput{Closing: c.closing})
		})
	}
}

func (s *relaySim) leave(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
	return s.use(h, r, func(e *memoryEdge) error {
		c, err := s.pick(ctx, e, r)
		if err != nil {
			return err
		}
		return e.send(ctx, c, dohost.LinkInput{Closing: &dohost.Closing{Code: 1000, Clean: true}})
	})
}

func (s *relaySim) cut(_ context.Context, h *dohosttest.Host, r *rand.Rand) error {
	return s.use(h, r, func(e *memoryEdge) error {
		if e.link != nil {
			e.link.Close()
		}
		return nil
	})
}

// lose ends an edge without notice.
func (s *relaySim) lose(_ context.Context, h *dohosttest.Host, r *rand.Rand) error {
	return s.use(h, r, func(e *memoryEdge) error {
		if e.link != nil {
			e.link.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.edges {
			if s.edges[i] == e {
				s.former, s.edges[i] = append(s.former, e), nil
			}
		}
		return nil
	})
}

// tick makes the object send a frame to all sockets.
func (*relaySim) tick(ctx context.Context, h *dohosttest.Host, _ *rand.Rand) error {
	err := tallies.Get(h, "x").Do(ctx, func(ctx context.Context, t *tally) error { return t.count(ctx, "tick", "") })
	if errors.Is(err, dohost.ErrOverloaded) { // it has waited for a host that is down
		return dohost.ErrClosed
	}
	return err
}

// each waits for a condition of each open socket of the present edges.
func (s *relaySim) each(ctx context.Context, condition func(c *edgeSocket) bool) error {
	for _, e := range s.edges {
		if e == nil {
			continue
		}
		for _, c := range e.sockets {
			if c.gone || c.ended {
				continue
			}
			if err := e.wait(ctx, func() bool { return c.gone || c.closing != nil || condition(c) }); err != nil {
				return fmt.Errorf("socket %d of %s has %q: %w", c.number, e.name, c.frames, err)
			}
		}
	}
	return nil
}

// check waits for the acknowledgments of all inputs and for the last frame of the object, and then checks the frames of each client.
func (s *relaySim) check(ctx context.Context, h *dohosttest.Host) error {
	if err := s.each(ctx, func(c *edgeSocket) bool { return len(c.unacked) == 0 }); err != nil {
		return err
	}
	count := 0
	err := tallies.Get(h, "x").Do(ctx, func(ctx context.Context, t *tally) (err error) {
		count, _, err = dohost.Get[int](ctx, t.st.Storage(), "count")
		return err
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, func(c *edgeSocket) bool {
		if len(c.frames) == 0 {
			return s.texts[c] == 0 // the acknowledgment of a frame is sent before the frame that answers it
		}
		return numberOf(c.frames[len(c.frames)-1]) == count
	})
	if err != nil {
		return fmt.Errorf("the object has counted %d frames: %w", count, err)
	}
	for _, e := range append(slices.Clone(s.former), s.edges[:]...) {
		if e == nil {
			continue
		}
		for _, c := range e.sockets {
			if err := s.checkFrames(e, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFrames checks that the frames of a client have numbers without gaps, and that its own frames are in order.
func (s *relaySim) checkFrames(e *memoryEdge, c *edgeSocket) error {
	own, prefix := 0, fmt.Sprintf("%s/%d:", e.name, c.number)
	for i, f := range c.frames {
		s.frames++
		if i > 0 && numberOf(f) != numberOf(c.frames[i-1])+1 {
			return fmt.Errorf("socket %d of %s gets %q after %q", c.number, e.name, f, c.frames[i-1])
		}
		if _, text, _ := strings.Cut(f, " "); strings.HasPrefix(text, prefix) {
			if own++; !strings.HasPrefix(text, fmt.Sprint(prefix, own, " ")) {
				return fmt.Errorf("socket %d of %s gets %q as its frame %d", c.number, e.name, f, own)
			}
		}
	}
	if unacked := len(c.unacked); own+unacked < s.texts[c] && !c.gone && c.closing == nil && slices.Contains(s.edges[:], e) {
		return fmt.Errorf("socket %d of %s has sent %d frames, has %d, and waits for %d", c.number, e.name, s.texts[c], own, unacked)
	}
	return nil
}

func numberOf(frame string) (n int) {
	_, _ = fmt.Sscan(frame, &n) // 0 for another frame
	return n
}

// TestRelaySimulation draws clients of three edges that send frames, leave, and lose their link or their edge, while incarnations and processes end:
// each client gets each frame of the object once and in order, from its first one on, and the object each frame of a client.
func TestRelaySimulation(t *testing.T) {
	s, all := &relaySim{}, 0
	runs := 40
	if pointtest.Full() {
		runs = 1000
	}
	dohosttest.Simulate(t, dohosttest.Simulation{
		Scenario: dohosttest.Scenario{
			Classes: []dohost.Class{tallyClass(&s.closed, &dohost.Handlers[tally]{})},
			Reset:   func() { all += s.frames; *s = relaySim{texts: map[*edgeSocket]int{}} },
			Check: func(ctx context.Context, h *dohosttest.Host) error {
				return errors.Join(s.check(ctx, h), dohost.Sleep(ctx, time.Second))
			},
			SharedLog: true,
		},
		Ops: []dohosttest.Op{
			{Name: "say", Weight: 8, Do: s.say}, {Name: "tick", Weight: 3, Do: s.tick}, {Name: "attach", Do: s.command("attach")},
			{Name: "bye", Do: s.command("bye")}, {Name: "leave", Do: s.leave}, {Name: "cut", Weight: 2, Do: s.cut}, {Name: "lose", Do: s.lose},
		},
		Runs: runs,
	})
	replays := flag.Lookup("dohosttest.replay").Value.String() != ""
	if t.Logf("%d frames were checked", all); all == 0 && !replays {
		t.Error("no frame was checked")
	}
}
