//go:build unix

package main

import (
	"context"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/cluster/nats/natslog"
	"github.com/dohost/dohost/examples/counter"
)

// openHost opens a host with an empty directory on the cell.
func openHost(t *testing.T, l *natslog.Log) *dohost.Host {
	t.Helper()
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Lease: lease, BaseAfter: 4 << 10}, counter.Class())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func count(t *testing.T, h *dohost.Host, delta int) int {
	t.Helper()
	n, err := dohost.Call(t.Context(), counter.Counters.Get(h, "a"), (*counter.Counter).Add, delta)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNodeThatIsNewReadsABase has a host that writes bases, and two others that open empty directories.
func TestNodeThatIsNewReadsABase(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	l, err := natslog.Open(t.Context(), s.Connect(t, "app"), "main", &natslog.Options{System: s.Connect(t, "system"), LeaseTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, n := openHost(t, l), 0
	for h.Stats().Shared.Written < 3 && ctx.Err() == nil {
		n = count(t, h, 1)
	}
	if stats := h.Stats().Shared; stats.Written < 3 {
		t.Fatalf("%+v", stats)
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = openHost(t, l)
		if got := count(t, h, 0); got != n {
			t.Errorf("the counter is %d, want %d", got, n)
		}
	}
}
