package ledger_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// started is a shop whose constructor lists the unfinished operations, and whose history has the order of the reports, the listing
// and the events.
type started struct {
	*shop
	mu      sync.Mutex
	history []string
}

func (s *started) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, what)
}

// take returns the history, and begins a new one.
func (s *started) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := strings.Join(s.history, ", ")
	s.history = nil
	return h
}

func (s *started) class() dohost.Class {
	return dohost.Bind(orders, func(ctx context.Context, st *dohost.State) (*order, error) {
		all, err := collect(ledger.Unfinished(ctx, st))
		for _, op := range all {
			s.add(fmt.Sprintf("the constructor lists %s %s", op.Scope, op.Status))
		}
		return &order{st, s.shop}, err
	}, &dohost.Handlers[order]{Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)}})
}

// TestOperationsThatWereInterruptedAreListedAtStart ends an incarnation during three calls, one after the other, and wakes the object with an
// event of another kind: all of them are reported, and the constructor can list them, before that event runs.
func TestOperationsThatWereInterruptedAreListedAtStart(t *testing.T) {
	s := &started{shop: newShop(ledger.PolicyAtMostOnce)}
	s.bank.Latency = time.Hour
	scopes := map[string]string{}
	s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		switch event {
		case "ledger:interrupted":
			s.add("reported " + scopes[attrs[1].Value.String()])
		case "test:event":
			s.add("the event")
		}
	}
	options := &dohosttest.Options{
		Classes: []dohost.Class{s.class()}, Services: []*dohosttest.FakeService{&s.bank}, Options: dohost.Options{Listener: s.listener},
	}
	dohosttest.Run(t, options, func(t *testing.T, h *dohosttest.Host) {
		o := orders.Get(h, "7")
		var clients []*dohosttest.Client
		for _, scope := range []string{"a", "b", "c"} {
			clients = append(clients, h.Client(func(ctx context.Context) error {
				_, err := dohost.Call(ctx, o, (*order).payIn, scope)
				return err
			}))
			h.Advance(time.Second)
		}
		for _, op := range operationsOf(t, o) {
			scopes[string(op.ID)] = op.Scope
		}
		s.take()
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			_ = c.Wait() // its call was interrupted
		}
		wake := func(want string) {
			t.Helper()
			err := o.Do(t.Context(), func(ctx context.Context, o *order) error {
				o.st.Report(ctx, "test:event") // it leaves after the reports before it
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			h.Advance(time.Second)
			if got := s.take(); got != want {
				t.Errorf("the history is %s, want %s", got, want)
			}
			h.EvictAll()
		}
		listed := "the constructor lists a unknown, the constructor lists b unknown, the constructor lists c unknown, "
		wake(listed + "reported a, reported b, reported c, the event")
		wake(listed + "the event") // each is reported once
	})
}

// TestWakeReportsABoundedNumberOfOperations has operations whose callers have ended the context between two calls, each with a long
// scope. A wake reports a part of them, and the next one the others: each is reported once.
func TestWakeReportsABoundedNumberOfOperations(t *testing.T) {
	const n, most = 300, 1 << 20 / (5 << 10) // a row counts as 1 KiB and its texts
	s := newShop(ledger.PolicyIdempotent)
	s.before = failures(n, errTimeout)
	var mu sync.Mutex
	reports := map[string]int{}
	s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		mu.Lock()
		defer mu.Unlock()
		if event == "ledger:interrupted" {
			reports[attrs[1].Value.String()]++
		}
	}
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for i := range n {
			err := o.Do(t.Context(), func(ctx context.Context, o *order) error {
				ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				_, err := o.payIn(ctx, strings.Repeat("x", 4<<10)+fmt.Sprint(i))
				return err
			})
			unknownID(t, err)
		}
		for _, least := range []int{most / 2, n} {
			if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
			if err := o.Do(t.Context(), func(context.Context, *order) error { return nil }); err != nil {
				t.Fatal(err)
			}
			h.Advance(time.Second)
			mu.Lock()
			got := len(reports)
			mu.Unlock()
			if got < least || least < n && got > most {
				t.Errorf("%d of %d operations are reported, want at least %d", got, n, least)
			}
		}
		for id, times := range reports {
			if times != 1 {
				t.Errorf("the operation %s is reported %d times", id, times)
			}
		}
	})
}
