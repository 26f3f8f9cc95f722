package dohosttest

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// Client is a concurrent part of a scenario.
type Client struct{ done chan error }

// Client runs f as a client of its own. Clients start in the order of their Client calls,
// and if two make a request, or return from a [dohost.Sleep] with the context of f, at the
// same moment the earlier client is first: that makes a scenario with several clients the
// same in each run, unlike bare goroutines. The context of f ends when the run is given up,
// not with the context of its caller.
func (h *Host) Client(f func(ctx context.Context) error) *Client {
	c, number := h.run.clients.add()
	ctx := context.WithValue(h.run.ctx, clientKey{}, number)
	ctx = runtime.OnSlept(ctx, seal.New(), func() { h.run.pause(ctx) })
	go func() {
		h.run.clients.assign(number)
		err := errExited
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			c.done <- err
		}()
		h.run.pause(ctx)
		err = f(ctx)
	}()
	return c
}

// Wait waits until the client has ended, and returns its error. It may be called more than once.
func (c *Client) Wait() error {
	err := <-c.done
	c.done <- err
	return err
}

// clients has the clients of a run.
type clients struct {
	mu      sync.Mutex
	all     []*Client
	numbers map[string]int64 // by the goroutine's name in its stack
	calls   map[int64]int    // counted calls, by the client's number
}

// countCall counts a call of this goroutine's client, and returns the client's number and the count.
func (cs *clients) countCall() (client int64, n int) {
	client = cs.current()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.calls == nil {
		cs.calls = map[int64]int{}
	}
	cs.calls[client]++
	return client, cs.calls[client]
}

// add makes another client, and numbers it.
func (cs *clients) add() (c *Client, number int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c = &Client{make(chan error, 1)}
	cs.all = append(cs.all, c)
	return c, int64(len(cs.all))
}

// assign assigns this goroutine to the client.
func (cs *clients) assign(number int64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.numbers == nil {
		cs.numbers = map[string]int64{}
	}
	cs.numbers[goroutine()] = number
}

// current returns the number of the client that this goroutine belongs to, or zero. Methods of
// Host have no context that would have the number.
func (cs *clients) current() int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.numbers[goroutine()]
}

// joinOthers waits for every client but the first two, which are the scenario and its Run,
// and returns the errors that excuse does not accept.
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

// clientKey is the context key of a client's number.
type clientKey struct{}

func clientOf(ctx context.Context) int64 {
	n, _ := ctx.Value(clientKey{}).(int64)
	return n
}

var errExited = errors.New("a client ended its goroutine instead of returning an error")

// goroutine returns the name of its caller's goroutine: the beginning of its stack.
func goroutine() string {
	var buf [64]byte
	name, _, _ := strings.Cut(string(buf[:goruntime.Stack(buf[:], false)]), " [")
	return name
}
