//go:build unix

package natslog

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

// TestOwnerThatIsStoppedIsFenced stops the process of an owner for longer than its lease.
func TestOwnerThatIsStoppedIsFenced(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	l := open(t, s, "main", Options{LeaseTime: testLease})
	former, lines := natstest.Process(t, ownerEnv, s.URL("app"))
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
	suspend(t, former)
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
	if !strings.Contains(text, sharedlog.ErrFenced.Error()) || acknowledged > o.Newest() {
		t.Errorf("the former owner has %d acknowledged records, the next one found %d; %s", acknowledged, o.Newest(), text)
	}
	newest := o.number
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, acquire(t, l), newest)
}

// TestNodeThatIsStoppedLosesAllCells stops the process of a node for longer than its session. When it continues, it begins another session.
func TestNodeThatIsStoppedLosesAllCells(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	next := startNode(t, s, "main", single)
	former, lines := natstest.Process(t, nodeEnv, s.URL("app"))
	acknowledged := uint64(0) // in both cells
	for acknowledged < 50 {
		if !lines.Scan() {
			t.Fatal("the node has ended", lines.Err())
		}
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(lines.Text())
		}
		acknowledged = n
	}
	suspend(t, former)
	var leases []*lease
	for cell := range 2 {
		o := acquire(t, next.log(t, cell))
		appends(t, o, o.Newest()+1, o.Newest()+10)
		leases = append(leases, o)
	}
	if err := former.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for lines.Scan() { // the node ends after the second refusal
		if n, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil && refusals == 0 {
			acknowledged = n
		} else if strings.Contains(lines.Text(), sharedlog.ErrFenced.Error()) {
			refusals++
		}
	}
	if refusals != len(leases) {
		t.Errorf("%d appends of the former owner were refused, want one in each cell", refusals)
	}
	for _, o := range leases {
		if acknowledged > o.Newest() {
			t.Errorf("cell %s: the former owner has %d acknowledged records, the next one found %d", o.log.cell, acknowledged, o.Newest())
		}
		if err := o.Append(t.Context(), o.number+1, record(o.number+1)); err != nil {
			t.Error(err)
		}
	}
}

// suspend stops a child process and returns when all of its threads are stopped, which is some time after the signal.
func suspend(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal("the process was not stopped: ", status, err)
	}
}

// TestConnectionLeavesASilentServer stops the server of a connection, which does not close it.
func TestConnectionLeavesASilentServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	nc, err := connect(s.URL("app"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	silent := nc.ConnectedServerName()
	suspend(t, s.Processes[silent])
	begun := time.Now()
	for server := silent; server == silent || server == ""; server = nc.ConnectedServerName() {
		if time.Since(begun) > time.Minute {
			t.Fatal("the connection is still to the server that is stopped, or to none")
		}
		if err := sleep(t.Context(), 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("connected to another server after %v", time.Since(begun).Round(time.Millisecond))
}

// TestConnectionClosedDuringAnAppend closes the connection when a record was sent to a server that does not answer.
func TestConnectionClosedDuringAnAppend(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 1)
	o.session.endRenewals() // so that the record is the only message
	for _, server := range s.Processes {
		suspend(t, server)
	}
	before, done := l.nc.Stats().OutMsgs, make(chan error, 1)
	go func() { done <- o.Append(t.Context(), 2, record(2)) }()
	for l.nc.Stats().OutMsgs == before {
		if err := sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	l.nc.Close()
	if err := <-done; !errors.Is(err, sharedlog.ErrUnknown) {
		t.Errorf("the append has ended with %v", err)
	}
}

// TestOwnerThatIsKilledIsReplaced kills the process of an owner among its appends.
func TestOwnerThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	l := open(t, s, "main", Options{LeaseTime: testLease})
	former, lines := natstest.Process(t, ownerEnv, s.URL("app"))
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
	took := time.Since(begun)
	t.Logf("acquired after %v", took.Round(time.Millisecond))
	if took > testLease+patience {
		t.Error("the killed owner kept the log for too long")
	}
	if n, err := strconv.ParseUint(acknowledged, 10, 64); err != nil || n > o.Newest() || n+1 < o.Newest() {
		t.Errorf("the killed owner has acknowledged %s, the next one found %d: %v", acknowledged, o.Newest(), err)
	}
	has(t, o, o.Newest())
}

// TestLeaderThatIsKilledLosesNoAcknowledgedRecord kills the server that leads the stream among appends. A lease that outlasts the election
// continues.
func TestLeaderThatIsKilledLosesNoAcknowledgedRecord(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	l := open(t, s, "main", Options{LeaseTime: time.Minute})
	o := acquire(t, l)
	const before, after = 200, 400
	appends(t, o, 1, before)
	info, err := l.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Processes[info.Cluster.Leader].Process.Kill(); err != nil {
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
