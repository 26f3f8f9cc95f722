package dohosttest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// scheduler decides which goroutine proceeds. Every goroutine of a host asks before each
// step that others can observe, and waits; when all wait, one proceeds. So a run is one
// sequence of steps, and the same one each time, whichever goroutine asks first: the choice
// depends on names only.
//
// Requests of an earlier round are first, so that no goroutine starves; within a round, the
// smallest name is first, or a seed draws one. The disk is before all others, or after them
// (order).
type scheduler struct {
	visit func(*stepRequest) eviction.EndMode // called at a standstill
	name  func(*stepRequest) string
	begin func() // called at a standstill, before each step
	order order
	draw  *rand.Rand // nil: no draw

	asked chan struct{} // capacity 1
	quit  chan struct{}
	done  chan struct{}

	mu       sync.Mutex
	incoming []*stepRequest // requests since the last step

	// Owned by the goroutine.
	waiting []*stepRequest
	round   int
}

// order is the position of the disk, or a seed that draws the whole order.
type order struct {
	last  bool
	drawn bool
	seed  uint64
}

var (
	diskFirst = order{}           // a record holds one batch
	diskLast  = order{last: true} // a record holds the writes of all objects
)

// drawnOrder is the order that a seed draws.
func drawnOrder(seed uint64) order { return order{drawn: true, seed: seed} }

// stepRequest is a request to proceed.
type stepRequest struct {
	proc    *process
	point   runtime.Point
	do      func()                // of a test: called at a standstill, instead of visit
	client  int64                 // the client of do
	pcs     []uintptr             // the stack, if it is needed
	proceed chan eviction.EndMode // capacity 1

	key   string
	round int
}

func newScheduler(o order) *scheduler {
	s := &scheduler{order: o, asked: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if o.drawn {
		s.draw = rand.New(rand.NewPCG(o.seed, 0))
	}
	return s
}

// ask waits until g may proceed, and returns how the incarnation of its point ends.
func (s *scheduler) ask(g *stepRequest) eviction.EndMode {
	g.proceed = make(chan eviction.EndMode, 1)
	s.mu.Lock()
	s.incoming = append(s.incoming, g)
	s.mu.Unlock()
	select {
	case s.asked <- struct{}{}:
	default:
	}
	select {
	case mode := <-g.proceed:
		return mode
	case <-s.done:
		return eviction.EndNone // the run is over
	}
}

// run is the scheduler's goroutine. Virtual time passes while there is no request.
func (s *scheduler) run() {
	defer close(s.done)
	for {
		synctest.Wait()
		s.sort()
		if len(s.waiting) == 0 {
			select {
			case <-s.asked:
				continue
			case <-s.quit:
				return
			}
		}
		s.step(s.take())
	}
}

// stop ends the goroutine. Later requests do not wait.
func (s *scheduler) stop() {
	close(s.quit)
	<-s.done
}

func (s *scheduler) step(g *stepRequest) {
	s.begin()
	if g.do != nil {
		g.do()
		g.proceed <- eviction.EndNone
		return
	}
	mode := s.visit(g)
	g.proceed <- mode
}

// sort moves the new requests to the queue, in the order of their names.
func (s *scheduler) sort() {
	s.mu.Lock()
	fresh := s.incoming
	s.incoming = nil
	s.mu.Unlock()
	s.round++
	for _, g := range fresh {
		if g.round = s.round; len(fresh) > 1 { // one request needs no name
			g.key = s.name(g)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *stepRequest) int { return cmp.Compare(a.key, b.key) })
	s.waiting = append(s.waiting, fresh...)
}

// take removes the next request from the queue, and returns it.
func (s *scheduler) take() *stepRequest {
	at := s.choose()
	g := s.waiting[at]
	s.waiting = slices.Delete(s.waiting, at, at+1)
	return g
}

func (s *scheduler) choose() int {
	if dead := slices.IndexFunc(s.waiting, func(g *stepRequest) bool { return g.proc != nil && g.proc.ended }); dead >= 0 {
		return dead
	}
	if s.order.drawn {
		return s.draw.IntN(len(s.waiting))
	}
	at := 0
	for i, g := range s.waiting {
		if s.rank(g) < s.rank(s.waiting[at]) {
			at = i
		}
	}
	return at
}

// rank is lower for requests that are first. A commit is a point of its own before the disk
// gets the batch.
func (s *scheduler) rank(g *stepRequest) int {
	disk := 0
	switch g.point.Place {
	case eviction.PlaceCommitted:
		return 0
	case eviction.PlaceSync, eviction.PlaceDurable:
		disk = 1
	case eviction.PlaceRecord: // and the sync itself, after the point of its record
		disk = 2
	}
	switch {
	case disk == 0 || g.do != nil:
		return 5
	case s.order == diskFirst:
		return disk
	}
	return 5 + disk
}

// hashOf is a number for a list of words.
func hashOf(words ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, words...)
	return h.Sum64()
}
