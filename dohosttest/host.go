package dohosttest

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// Host is a host in a test's own time, on a file system in memory. It stands for one
// process after the other: a stub of [dohost.Namespace.Get] finds the one of the moment,
// and a call that comes while there is none waits. Its methods may be called from any
// goroutine of the test, but not from an object's code.
type Host struct{ w *world }

// Runtime makes Host a [dohost.Locator].
func (h *Host) Runtime() *runtime.Host { return h.Host().Runtime() }

// Host returns the dohost.Host of the moment, to export, import, list or serve HTTP
// with.
func (h *Host) Host() *dohost.Host {
	h.w.mustGoOn()
	return h.w.seat.get().host
}

// Evict ends the object's incarnation, if it has one, and says whether it had.
func (h *Host) Evict(id dohost.ID, s dohost.Style) (had bool) {
	h.w.atRest(func() {
		h.w.log.note(id, "evicted by the test")
		h.w.disturbed = true
		had = h.w.seat.proc.host.Evict(id, s)
	})
	return had
}

// EvictAll ends every incarnation, by a fence: what comes next knows what was handed
// over, and nothing else.
func (h *Host) EvictAll() {
	h.w.atRest(func() {
		var ids []dohost.ID
		for info := range h.w.seat.proc.host.Live() {
			ids = append(ids, info.ID)
		}
		slices.SortFunc(ids, compareIDs)
		for _, id := range ids {
			h.w.seat.proc.host.Evict(id, dohost.Fence)
		}
	})
}

// Crash ends the process in the middle of what it does, by a power cut: what was not
// synced is lost, and the next process begins on the rest. Callers get
// [dohost.ErrFenced] or [dohost.ErrClosed].
func (h *Host) Crash() { h.end(PowerCut) }

// Kill ends the process as SIGKILL does: the next begins on all that was written, synced
// or not. Callers get what they get of a Crash.
func (h *Host) Kill() { h.end(Kill) }

func (h *Host) end(w Way) {
	h.w.atRest(func() {
		h.w.log.note(dohost.ID{}, "%v by the test", w)
		h.w.disturbed = true
		h.w.end(w == Kill)
	})
}

// Restart closes the process in good order and begins the next, with the classes that
// are given, as a newer version of the program would; none mean the same as before.
// After a failed sync it begins on what was synced, on a disk that works. Its error is
// that of [dohost.Host.Close].
func (h *Host) Restart(classes ...dohost.Class) error {
	var old *process
	h.w.atRest(func() {
		old = h.w.seat.down()
		if len(classes) > 0 { // also if it is killed while it closes
			h.w.classes = classes
		}
		h.w.log.note(dohost.ID{}, "restart by the test")
		h.w.disturbed = true
	})
	err := old.host.Close()
	h.w.atRest(func() {
		if h.w.seat.proc != old {
			return // it has ended otherwise meanwhile
		}
		old.ended = true
		close(old.gone)
		h.w.buried = append(h.w.buried, old)
		fs := old.fs
		if old.host.Err() != nil {
			fs = fs.Crash(0, 1)
		}
		h.w.next(fs, old)
	})
	return err
}

// FailSync lets the disk of this process fail from the next sync on with err: the store
// fails then, and with it the process, which Restart follows by another.
func (h *Host) FailSync(err error) {
	h.w.atRest(func() {
		h.w.seat.proc.fs.FailSyncs(err)
		h.w.disturbed = true
	})
}

// Advance lets time pass, and with it whatever is due.
func (h *Host) Advance(d time.Duration) {
	time.Sleep(d)
	h.w.atRest(func() {}) // others may have woken at the same moment
}

// longestRest is how long [Host.Rest] waits, unless it is told otherwise.
const longestRest = 24 * time.Hour

// Rest lets time pass until nothing is left to do: no event queued, running or
// suspended, no alarm set, nothing undurable. Its error says what still goes on after
// within, or after a day if that is zero.
func (h *Host) Rest(within time.Duration) error {
	if within == 0 {
		within = longestRest
	}
	until := time.Now().Add(within)
	wait := time.Millisecond
	for {
		time.Sleep(wait)
		if err := context.Cause(h.w.ctx); err != nil {
			return err
		}
		now := h.Runtime().Work()
		if now.Events == 0 && now.Undurable == 0 && now.Alarms == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("it does not come to rest within %v: %s", within, h.busy(now))
		}
		wait = min(2*wait, time.Second)
		if now.Events == 0 && now.Undurable == 0 {
			wait = min(max(time.Until(now.Next), time.Millisecond), time.Until(until)+time.Millisecond)
		}
	}
}

// busy says what goes on.
func (h *Host) busy(now runtime.Work) string {
	var what []string
	if now.Alarms > 0 {
		what = append(what, fmt.Sprintf("%d alarms are set, the next for %v from now", now.Alarms, time.Until(now.Next).Round(time.Millisecond)))
	}
	if now.Events > 0 {
		what = append(what, fmt.Sprintf("%d events have not ended", now.Events))
	}
	for info := range h.Host().Live() {
		for _, pin := range info.Pins {
			what = append(what, fmt.Sprintf("%v: %s for %v", info.ID, pin.Why, pin.For.Round(time.Millisecond)))
		}
	}
	return strings.Join(what, "; ")
}

// Log tells what has happened so far: points, incarnations, alarms, errors.
func (h *Host) Log() string { return h.w.log.String() }

// pause lets the other clients that wake at the same moment begin in their order.
func (w *world) pause(ctx context.Context) {
	w.sched.ask(&grant{do: func() {}, client: clientOf(ctx)})
}

// atRest does f with everything at a standstill.
func (w *world) atRest(f func()) {
	w.mustGoOn()
	w.sched.ask(&grant{do: f, client: w.clients.here()})
}

// mustGoOn panics if the run is over. Its channels are those of a bubble that is gone,
// and would end the test's process.
func (w *world) mustGoOn() {
	if w.over.Load() {
		panic("dohosttest: the run of this Host is over; use the Host that the function is given")
	}
}

// clientKey is the context key under which a client finds its number.
type clientKey struct{}

func clientOf(ctx context.Context) int64 {
	n, _ := ctx.Value(clientKey{}).(int64)
	return n
}

var errExited = errors.New("a client ended its goroutine instead of returning an error")

// Client is something that goes on beside the rest of a scenario.
type Client struct{ done chan error }

// clients are those of a run.
type clients struct {
	mu      sync.Mutex
	all     []*Client
	numbers map[string]int64 // by the goroutine's name in its stack
}

// add makes another, and numbers it.
func (cs *clients) add() (c *Client, number int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c = &Client{make(chan error, 1)}
	cs.all = append(cs.all, c)
	return c, int64(len(cs.all))
}

// enter notes that this goroutine is the client's.
func (cs *clients) enter(number int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.numbers == nil {
		cs.numbers = map[string]int64{}
	}
	cs.numbers[goroutine()] = number
}

// here is the number of the client whose goroutine this is, or zero. What a client asks
// of its Host has no context that would tell.
func (cs *clients) here() int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.numbers[goroutine()]
}

// goroutine names the one that calls it: the beginning of its stack.
func goroutine() string {
	var buf [64]byte
	name, _, _ := strings.Cut(string(buf[:goruntime.Stack(buf[:], false)]), " [")
	return name
}

// joinOthers waits for every client but the first two, which are the scenario and its
// Run, and returns the errors that excuse does not.
func (cs *clients) joinOthers(excuse func(error) bool) error {
	var errs []error
	for i := 2; ; i++ {
		cs.mu.Lock()
		if i >= len(cs.all) {
			cs.mu.Unlock()
			return errors.Join(errs...)
		}
		c := cs.all[i]
		cs.mu.Unlock()
		if err := c.Wait(); err != nil && !excuse(err) {
			errs = append(errs, err)
		}
	}
}

// Client runs f as a client of its own. Clients start in the order of their Client, and of two
// that ask for something at the same moment the earlier one is first: that keeps a
// scenario with several of them the same in each run, which bare goroutines do not. The
// context of f is its own: it ends when the run is given up, not with that of its caller.
func (h *Host) Client(f func(ctx context.Context) error) *Client {
	c, number := h.w.clients.add()
	ctx := context.WithValue(h.w.ctx, clientKey{}, number)
	go func() {
		h.w.clients.enter(number)
		err := errExited
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			c.done <- err
		}()
		h.w.pause(ctx)
		err = f(ctx)
	}()
	return c
}

// Wait waits for the client's end, and returns its error.
func (c *Client) Wait() error {
	err := <-c.done
	c.done <- err
	return err
}
