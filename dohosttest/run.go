package dohosttest

import (
	"context"
	"errors"
	"testing"

	"github.com/dohost/dohost"
)

// Options configures a [Run].
type Options struct {
	// Classes are the classes of the objects.
	Classes []dohost.Class
	// Options are the host's options. The test sets Chaos and keeps the store in memory.
	Options dohost.Options
	// Services are doubles; the log has their requests.
	Services []*FakeService
	// Batched is the slow disk of [Scenario.Batched].
	Batched bool
	// SharedLog is the log of [Scenario.SharedLog].
	SharedLog bool
}

// Run opens a host for f, in virtual time and on a file system in memory, and closes it
// after f. f gets a T of its own, which behaves like any other. If that T fails, t gets the
// log of the host. The goroutines of f should be [Host.Client]s.
//
// Run also fails t if the store that remains is not sound, and if a goroutine is leaked.
func Run(t *testing.T, o *Options, f func(t *testing.T, h *Host)) {
	t.Helper()
	w := &scenarioRun{classes: o.Classes, options: o.Options, services: o.Services}
	if o.Batched {
		w.order = diskLast
	}
	w.share(o.SharedLog)
	err := w.runInBubble(t, func(_ context.Context, h *Host) error { f(w.t, h); return nil })
	if err != nil && !(errors.Is(err, errExited) && (t.Failed() || t.Skipped())) {
		t.Error(err)
	}
	if errors.Is(err, errStuck) {
		t.FailNow()
	}
	if t.Failed() {
		t.Fatalf("log:\n%s", &w.log)
	}
}
