package dohosttest

import (
	"context"
	"errors"
	"testing"

	"github.com/dohost/dohost"
)

// Options tunes a [Run].
type Options struct {
	// Classes are those of the objects.
	Classes []dohost.Class
	// Options are those of the host. FS and Chaos are the test's.
	Options dohost.Options
	// Services are doubles whose requests are told in the log.
	Services []*Service
	// Batched is the slow disk of [Scenario.Batched].
	Batched bool
}

// Run opens a host for f, in virtual time and on a file system in memory, and closes it
// after f. f gets a T of its own, to be used as any other. If it fails, t has the log of
// what happened in the host. The goroutines of f should be [Host.Client]s.
//
// It fails t as well if the store that is left is not sound, and if a goroutine is left
// behind.
func Run(t *testing.T, o *Options, f func(t *testing.T, h *Host)) {
	t.Helper()
	w := &world{classes: o.Classes, options: o.Options, services: o.Services}
	if o.Batched {
		w.order = diskLast
	}
	err := w.in(t, func(_ context.Context, h *Host) error { f(w.t, h); return nil })
	if err != nil && !(errors.Is(err, errExited) && (t.Failed() || t.Skipped())) {
		t.Error(err)
	}
	if errors.Is(err, errStuck) {
		t.FailNow()
	}
	if t.Failed() {
		t.Fatalf("what happened:\n%s", &w.log)
	}
}
