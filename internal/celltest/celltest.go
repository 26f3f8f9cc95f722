// Package celltest runs objects of two cells, each on a host with a shared log, in one process and in virtual time. It interrupts each of the
// calls between them, one in each run: the call or its answer is lost, or another host takes over the log of the callee or of the caller.
package celltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// Ending is an interruption of a call.
type Ending int

// The interruptions.
const (
	NoEnding    Ending = iota
	LostCall           // the call does not arrive
	LateCall           // it arrives a minute later, when the caller has repeated it
	LostAnswer         // the call runs, and its answer is lost
	CalleeTaken        // then another host takes over the cell of the callee
	CallerTaken        // or that of the caller
	lastEnding  = CallerTaken
)

// String returns the name of the ending.
func (e Ending) String() string {
	return [...]string{"none", "lost call", "late call", "lost answer", "callee taken over", "caller taken over"}[e]
}

// Scenario is a program with objects of two cells.
type Scenario struct {
	// Classes returns the classes of a run. The hosts of a run share them.
	Classes func() []dohost.Class
	// Cell returns the cell of an object, 0 or 1.
	Cell func(dohost.ID) int
	// Run runs the program to its end, and checks it.
	Run func(ctx context.Context, c *Cells) error
}

// Cells are the cells of a run.
type Cells struct {
	s       *Scenario
	classes []dohost.Class
	logs    [2]logtest.Log
	hosts   [2]atomic.Pointer[dohost.Host]
	t       *testing.T

	mu     sync.Mutex     // guards the next two; no lock is taken while it is held, except by Open
	former []*dohost.Host // those that have lost their cells
	closed bool

	calls  atomic.Int64 // between cells
	most   atomic.Int64 // the longest one, in ns
	ending Ending
	at     int64 // the number of the call
	late   sync.WaitGroup

	// Fault, if Run has set it, returns the ending of each other call. It may be called from any goroutine.
	Fault func(call *dohost.RemoteCall) Ending
}

// At locates the host of a cell.
func (c *Cells) At(cell int) dohost.Locator {
	return dohost.NewLocator(func() *dohost.Host { return c.Host(cell) })
}

// Host returns the host that has a cell now.
func (c *Cells) Host(cell int) *dohost.Host { return c.hosts[cell].Load() }

// Retry calls fn until it returns no error of a call, for an hour at most.
func (c *Cells) Retry(ctx context.Context, fn func(context.Context) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{MaxAttempts: -1, MaxElapsed: time.Hour, ShouldRetry: func(err error, _ int) bool {
		e, ok := errors.AsType[*dohost.Error](err)
		return ok && e.Outcome != dohost.OutcomeRan
	}}, fn)
}

// Until calls fn each second until it returns true, for an hour at most.
func (c *Cells) Until(ctx context.Context, fn func(context.Context) (bool, error)) error {
	for range 3600 {
		done := false
		err := c.Retry(ctx, func(ctx context.Context) (err error) {
			done, err = fn(ctx)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return errors.New("the condition is not true after an hour")
}

// Sleep waits in virtual time.
func (c *Cells) Sleep(d time.Duration) { time.Sleep(d) }

// lateness is the time until a late call arrives.
const lateness = time.Minute

// InvokeRemote implements [dohost.Remote].
func (c *Cells) InvokeRemote(ctx context.Context, call *dohost.RemoteCall) ([]byte, error) {
	ending := NoEnding
	switch n := c.calls.Add(1); {
	case n == c.at:
		ending = c.ending
	case c.Fault != nil:
		ending = c.Fault(call)
	}
	lost := &dohost.Error{Op: call.Method, ID: call.ID, Err: errors.New("celltest: the connection is cut"), Outcome: dohost.OutcomeUnknown}
	cell := c.s.Cell(call.ID)
	switch ending {
	case LostCall:
		return nil, lost
	case LateCall:
		c.late.Go(func() {
			time.Sleep(lateness)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 20*time.Second)
			defer cancel()
			c.hosts[cell].Load().AnswerCall(ctx, call)
		})
		return nil, lost
	}
	ctx, cancel := context.WithTimeout(arrived{ctx}, 20*time.Second) // as package cluster does
	defer cancel()
	begin := time.Now()
	answer := c.hosts[cell].Load().AnswerCall(ctx, call)
	c.took(time.Since(begin))
	switch ending {
	case NoEnding:
		return answer, nil
	case CalleeTaken:
		c.TakeOver(cell)
	case CallerTaken:
		c.TakeOver(1 - cell)
	}
	return nil, lost
}

func (c *Cells) took(d time.Duration) {
	for was := c.most.Load(); int64(d) > was && !c.most.CompareAndSwap(was, int64(d)); was = c.most.Load() {
	}
}

// Longest returns the time of the longest call between the cells.
func (c *Cells) Longest() time.Duration { return time.Duration(c.most.Load()) }

// arrived is the context of a call at the other host, without the values of its caller.
type arrived struct{ context.Context }

// Value returns nil.
func (arrived) Value(any) any { return nil }

// TakeOver opens another host on the log of a cell. The code of the former one runs on, until its next write.
func (c *Cells) TakeOver(cell int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // the last call ends after the run
		return
	}
	if h := c.hosts[cell].Load(); h != nil {
		c.former = append(c.former, h)
	}
	lease, err := c.logs[cell].Acquire(c.t.Context())
	if err != nil {
		panic(err)
	}
	o := &dohost.Options{
		Lease: lease, Remote: c, Holds: func(id dohost.ID) bool { return c.s.Cell(id) == cell }, Grace: -1, Logger: slog.New(slog.DiscardHandler),
	}
	h, err := dohost.Open("data", kernel.OnFS(o, objectstore.NewMemFS()), c.classes...)
	if err != nil {
		panic(err)
	}
	c.hosts[cell].Store(h)
}

// run runs the scenario with an ending of the call of a number.
func (s *Scenario) run(t *testing.T, ending Ending, at int64) (calls int64) {
	t.Run(fmt.Sprintf("%v %d", ending, at), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Cells{s: s, classes: s.Classes(), t: t, ending: ending, at: at}
			defer c.close()
			c.TakeOver(0)
			c.TakeOver(1)
			if err := s.Run(t.Context(), c); err != nil {
				t.Error(err)
			}
			calls = c.calls.Load()
		})
	})
	return calls
}

func (c *Cells) close() {
	c.late.Wait()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for i := range c.hosts {
		c.former = append(c.former, c.hosts[i].Load())
	}
	for _, h := range c.former {
		_ = h.Close() // an error for a former owner
	}
}

// Once runs a scenario without an interruption.
func Once(t *testing.T, s *Scenario) {
	t.Helper()
	s.run(t, NoEnding, 0)
}

// EveryCall runs a scenario without an interruption, and then with each ending of each call that this run had. Race builds
// have a third of these runs.
func EveryCall(t *testing.T, s *Scenario) {
	t.Helper()
	calls := s.run(t, NoEnding, 0)
	if calls == 0 && !t.Failed() {
		t.Fatal("the cells do not call each other")
	}
	runs := 0
	for e := LostCall; e <= lastEnding; e++ {
		step, first := int64(1), int64(1)
		if invariants.Enabled { // the race detector makes a run much slower
			step, first = 3, 1+int64(e)%3
		}
		for at := first; at <= calls; at += step {
			s.run(t, e, at)
			runs++
		}
	}
	t.Logf("%d calls, %d runs with an interruption", calls, runs)
}
