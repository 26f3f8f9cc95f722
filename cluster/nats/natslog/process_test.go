//go:build unix

package natslog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/sharedlog"
)

// own is the process of an owner. It appends records until an append fails, and prints the number of each one, then the error.
func own(ctx context.Context, urls string) error {
	nc, err := nats.Connect(urls, connOptions...)
	if err != nil {
		return err
	}
	l, err := Open(ctx, nc, "main", &Options{UnsafeSync: true})
	if err != nil {
		return err
	}
	o, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println(ready)
	for n := uint64(1); ; n++ {
		err := o.Append(ctx, n, record(n))
		for errors.Is(err, sharedlog.ErrUnknown) { // as a host does
			err = o.Append(ctx, n, record(n))
		}
		if err != nil {
			fmt.Println(err)
			return nil
		}
		fmt.Println(n)
	}
}

// TestStoppedOwnerIsFenced stops the process of an owner for longer than its lease.
func TestStoppedOwnerIsFenced(t *testing.T) {
	t.Parallel()
	s := startServers(t, 3, "always")
	l := s.open(t, "main", Options{})
	former, lines := startProcess(t, ownerEnv, s.url("app"))
	acknowledged := uint64(0)
	next := func() (text string) {
		if !lines.Scan() {
			t.Fatal("the owner has ended", lines.Err())
		}
		if n, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
			acknowledged = n
			return ""
		}
		return lines.Text()
	}
	for acknowledged < 50 {
		if text := next(); text != "" {
			t.Fatal(text)
		}
	}
	if err := former.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	o := acquire(t, l)
	t.Logf("acquired after %v", time.Since(begun).Round(time.Millisecond))
	appends(t, o, o.Newest()+1, o.Newest()+10)
	if err := former.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	text := ""
	for text == "" {
		text = next()
	}
	if !strings.HasPrefix(text, sharedlog.ErrFenced.Error()) || acknowledged > o.Newest() {
		t.Errorf("the former owner has %d acknowledged records, the next one found %d; %s", acknowledged, o.Newest(), text)
	}
	newest := o.number
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, acquire(t, l), newest)
}

// TestKilledOwnerIsReplaced kills the process of an owner among its appends.
func TestKilledOwnerIsReplaced(t *testing.T) {
	t.Parallel()
	s := startServers(t, 3, "always")
	l := s.open(t, "main", Options{})
	former, lines := startProcess(t, ownerEnv, s.url("app"))
	acknowledged, begun := "", time.Time{}
	for n := 0; lines.Scan(); n++ {
		acknowledged = lines.Text()
		if n == 50 {
			begun = time.Now()
			if err := former.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := acquire(t, l)
	if took := time.Since(begun); took > defaultLease+time.Second {
		t.Errorf("acquired after %v", took)
	}
	if n, err := strconv.ParseUint(acknowledged, 10, 64); err != nil || n > o.Newest() || n+1 < o.Newest() {
		t.Errorf("the killed owner has acknowledged %s, the next one found %d: %v", acknowledged, o.Newest(), err)
	}
	has(t, o, o.Newest())
}

// TestKilledLeaderLosesNoAcknowledgedRecord kills the server that leads the stream among appends. A lease that outlasts the election
// continues.
func TestKilledLeaderLosesNoAcknowledgedRecord(t *testing.T) {
	t.Parallel()
	s := startServers(t, 3, "always")
	l := s.open(t, "main", Options{LeaseTime: 20 * time.Second})
	o := acquire(t, l)
	const before, after = 200, 400
	appends(t, o, 1, before)
	info, err := l.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.processes[info.Cluster.Leader].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begun, gap, failures := time.Now(), time.Duration(0), map[error]int{}
	for n := uint64(before + 1); n <= after; {
		err := o.Append(t.Context(), n, record(n))
		switch {
		case err == nil:
			n++
			if gap == 0 && len(failures) > 0 {
				gap = time.Since(begun)
			}
		case errors.Is(err, sharedlog.ErrUnknown):
			failures[sharedlog.ErrUnknown]++
		case errors.Is(err, sharedlog.ErrUnavailable):
			failures[sharedlog.ErrUnavailable]++
		default:
			t.Fatalf("append of record %d: %v", n, err)
		}
		if err != nil {
			if err := sleep(t.Context(), retryTime); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("the first record was acknowledged after %v; errors until then: %v", gap.Round(time.Millisecond), failures)
	if len(failures) == 0 || !o.Valid() {
		t.Errorf("the lease is valid %v, errors %v", o.Valid(), failures)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, acquire(t, l), after)
}
