package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
)

// An object in use: acknowledged writes are there when the directory is opened again.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for range 2 {
		host, err := dohost.Open(dir, nil, counter.Class())
		if err != nil {
			log.Fatal(err)
		}
		n, err := dohost.Call(ctx, counter.Counters.Get(host, "alice"), (*counter.Counter).Add, 2)
		fmt.Println(n, err)
		if err := host.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 2 <nil>
	// 4 <nil>
}

// withHost runs fn with a host in a directory of its own.
func withHost(fn func(ctx context.Context, h *dohost.Host), classes ...dohost.Class) {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, classes...)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	fn(context.Background(), h)
}

// A handler of an ended incarnation may continue, but it can write nothing, and its caller learns that the outcome is
// unknown. The next incarnation serves calls in the meantime.
func ExampleHost_Evict_running() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		alice := counter.Counters.Get(h, "alice")
		running, late := make(chan struct{}), make(chan error)
		evicted := make(chan struct{})
		go func() {
			err := alice.Do(ctx, func(ctx context.Context, c *counter.Counter) error {
				close(running)
				<-evicted // deaf to its ctx, which has ended
				_, err := c.Add(ctx, 100)
				late <- err
				return err
			})
			var e *dohost.Error
			fmt.Println("caller:", errors.As(err, &e) && errors.Is(err, dohost.ErrFenced), "ran:", e.Outcome)
			close(evicted)
		}()
		<-running
		h.Evict(alice.ID(), dohost.EndFence)
		fmt.Println("late write refused:", errors.Is(<-late, dohost.ErrFenced))
		fmt.Println(dohost.Call(ctx, alice, (*counter.Counter).Add, 1))
	}, counter.Class())
	// Output:
	// caller: true ran: unknown
	// late write refused: true
	// 1 <nil>
}

// An eviction loses an object's fields, and nothing else.
func ExampleHost_Evict() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		alice := counter.Counters.Get(h, "alice")
		fmt.Println(dohost.Call(ctx, alice, (*counter.Counter).Add, 1))
		fmt.Println(h.Evict(alice.ID(), dohost.EndFence))
		fmt.Println(h.Evict(alice.ID(), dohost.EndFence)) // not in memory
		fmt.Println(dohost.Call(ctx, alice, (*counter.Counter).Add, 1))
	}, counter.Class())
	// Output:
	// 1 <nil>
	// true
	// false
	// 2 <nil>
}

// notebook is an object for the examples below.
type notebook struct {
	state    *dohost.State
	attempts chan int
}

const notebooks dohost.Namespace[notebook] = "notebook"

func notebookClass(attempts chan int) dohost.Class {
	return dohost.Bind(notebooks, func(_ context.Context, st *dohost.State) (*notebook, error) {
		return &notebook{st, attempts}, nil
	}, &dohost.Handlers[notebook]{OnAlarm: (*notebook).onAlarm})
}

// onAlarm handles the alarm.
func (n *notebook) onAlarm(_ context.Context, info dohost.AlarmInfo) error {
	n.attempts <- info.Attempt
	return nil
}

// While an Await's function runs, other events use the object.
func ExampleAwait() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		home := notebooks.Get(h, "home")
		err := home.Do(ctx, func(ctx context.Context, n *notebook) error {
			fmt.Println("first, before")
			err := dohost.Await(ctx, func(ctx context.Context) error {
				// No turn here: another event may have it.
				return home.Do(ctx, func(context.Context, *notebook) error {
					fmt.Println("second")
					return nil
				})
			})
			fmt.Println("first, after")
			return err
		})
		fmt.Println(err)
	}, notebookClass(nil))
	// Output:
	// first, before
	// second
	// first, after
	// <nil>
}

// ExampleAwaitValue has an Await that returns the value of its function.
func ExampleAwaitValue() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		err := notebooks.Get(h, "home").Do(ctx, func(ctx context.Context, n *notebook) error {
			page, err := dohost.AwaitValue(ctx, func(context.Context) (string, error) {
				return "ink", nil // such as the answer of another service
			})
			if err != nil {
				return err
			}
			fmt.Println(page)
			return dohost.Put(ctx, n.state.Storage(), "page", page)
		})
		fmt.Println(err)
	}, notebookClass(nil))
	// Output:
	// ink
	// <nil>
}

// A transaction that fails rolls back all of its writes, and the alarm.
func ExampleTransaction() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		err := notebooks.Get(h, "home").Do(ctx, func(ctx context.Context, n *notebook) error {
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				if err := dohost.Put(ctx, n.state.Storage(), "page", "ink"); err != nil {
					return err
				}
				if err := n.state.SetAlarm(ctx, time.Now().Add(time.Hour)); err != nil {
					return err
				}
				return errors.New("out of ink")
			})
			fmt.Println(err)
			_, written, _ := dohost.Get[string](ctx, n.state.Storage(), "page")
			_, set, err := n.state.GetAlarm(ctx)
			fmt.Println(written, set)
			return err
		})
		fmt.Println(err)
	}, notebookClass(nil))
	// Output:
	// out of ink
	// false false
	// <nil>
}

// An alarm fires without a request.
func ExampleHandlers_onAlarm() {
	attempts := make(chan int, 1) // the handler may run before the eviction, and again after it
	withHost(func(ctx context.Context, h *dohost.Host) {
		err := notebooks.Get(h, "home").Do(ctx, func(ctx context.Context, n *notebook) error {
			return n.state.SetAlarm(ctx, time.Now().Add(10*time.Millisecond))
		})
		fmt.Println(err)
		h.Evict(notebooks.Get(h, "home").ID(), dohost.EndFence)
		fmt.Println("failed before:", <-attempts)
	}, notebookClass(attempts))
	// Output:
	// <nil>
	// failed before: 0
}

// An error reports whether the object ran.
func ExampleError() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		home := notebooks.Get(h, "home")
		for _, err := range []error{
			home.Do(ctx, func(context.Context, *notebook) error { return errors.New("torn page") }),
			home.Do(ctx, func(ctx context.Context, n *notebook) error { return n.state.Abort(ctx, errors.New("fire"), nil) }),
			dohost.Namespace[notebook]("diary").Get(h, "home").Do(ctx, func(context.Context, *notebook) error { return nil }),
		} {
			e, _ := errors.AsType[*dohost.Error](err)
			fmt.Printf("ran: %v, reset: %v, fenced: %v, not found: %v\n", e.Outcome, e.Reset(), errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrNotFound))
		}
	}, notebookClass(nil))
	// Output:
	// ran: yes, reset: false, fenced: false, not found: false
	// ran: unknown, reset: true, fenced: true, not found: false
	// ran: no, reset: false, fenced: false, not found: true
}

// Retry repeats calls that may be repeated.
func ExampleRetry() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		home := notebooks.Get(h, "home")
		tries := 0
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			return home.Do(ctx, func(ctx context.Context, n *notebook) error {
				tries++
				if tries == 1 {
					return n.state.Abort(ctx, nil, nil) // the outcome is unknown to the caller
				}
				return dohost.Put(ctx, n.state.Storage(), "page", "ink")
			})
		})
		fmt.Println(tries, err)

		tries = 0
		err = dohost.Retry(ctx, nil, func(ctx context.Context) error {
			return home.Do(ctx, func(ctx context.Context, n *notebook) error {
				tries++
				return n.state.Abort(ctx, nil, nil)
			})
		})
		fmt.Println(tries, errors.Is(err, dohost.ErrFenced))
	}, notebookClass(nil))
	// Output:
	// 2 <nil>
	// 1 true
}

// Retry repeats a call that did not run. It repeats a call with an unknown outcome only if the call is idempotent, as
// above, and never one that ran.
func ExampleRetry_ran() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		home := notebooks.Get(h, "home")
		busy, free := make(chan struct{}), make(chan struct{})
		go home.Do(ctx, func(context.Context, *notebook) error {
			close(busy)
			<-free
			return nil
		})
		<-busy
		tries := 0
		err := dohost.Retry(ctx, nil, func(ctx context.Context) error {
			tries++
			patience := time.Minute
			if tries == 1 {
				patience = time.Millisecond
				defer close(free)
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := home.Do(ctx, func(ctx context.Context, n *notebook) error {
				return errors.New("torn page")
			})
			e, _ := errors.AsType[*dohost.Error](err)
			fmt.Printf("ran: %v, retryable: %v\n", e.Outcome, e.Retryable)
			return err
		})
		fmt.Println(tries, err)
	}, notebookClass(nil))
	// Output:
	// ran: no, retryable: true
	// ran: yes, retryable: false
	// 2 dohost: Do notebook/home: torn page
}

// An export of an object's durable state is a stream of bytes. Import makes another object of it.
func ExampleHost_Import() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		alice, bob := counter.Counters.Get(h, "alice"), counter.Counters.Get(h, "bob")
		fmt.Println(dohost.Call(ctx, alice, (*counter.Counter).Add, 40))
		var export bytes.Buffer
		fmt.Println(h.Export(ctx, alice.ID(), &export))
		fmt.Println(h.Import(ctx, bob.ID(), bytes.NewReader(export.Bytes())))
		fmt.Println(dohost.Call(ctx, bob, (*counter.Counter).Add, 2))
		err := h.Import(ctx, bob.ID(), &export)
		fmt.Println(errors.Is(err, dohost.ErrConflict))
	}, counter.Class())
	// Output:
	// 40 <nil>
	// <nil>
	// <nil>
	// 42 <nil>
	// true
}

// Keys are in order, and selected by prefix and bounds.
func ExampleAll() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		err := notebooks.Get(h, "home").Do(ctx, func(ctx context.Context, n *notebook) error {
			for i, key := range []string{"page/2", "page/1", "cover", "page/3"} {
				if err := dohost.Put(ctx, n.state.Storage(), key, i); err != nil {
					return err
				}
			}
			for it, err := range dohost.All[int](ctx, n.state.Storage(), &dohost.ListOptions{Prefix: "page/", End: "page/3"}) {
				if err != nil {
					return err
				}
				fmt.Println(it.Key, it.Value)
			}
			return nil
		})
		fmt.Println(err)
	}, notebookClass(nil))
	// Output:
	// page/1 1
	// page/2 0
	// <nil>
}
