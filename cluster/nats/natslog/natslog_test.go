package natslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// testLease is the time of most leases. The renewals of a shorter one may come too late on a busy machine.
const testLease = 10 * time.Second

// patience is how much longer than its lease a silent owner may keep the log on a busy machine.
const patience = 30 * time.Second

// single are the options for one server.
var single = Options{Replicas: 1, UnsafeReplicas: true, LeaseTime: testLease}

// TestConformanceOneServer has the logs of tables: each handle is that of another node.
func TestConformanceOneServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	o := single
	o.System = s.Connect(t, "system")
	logtest.Run(t, logtest.Implementation{
		Open: func(t *testing.T, _ bool) sharedlog.Log {
			n := startNode(t, s, strings.ReplaceAll(t.Name(), "/", "_"), o)
			return n.log(t, 0)
		},
		Suspend: func(o sharedlog.Lease) { suspendNode(o.(*lease).log.table) },
	})
}

func TestConformanceThreeServers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	o := Options{LeaseTime: testLease, System: s.Connect(t, "system")}
	logtest.Run(t, logtest.Implementation{
		Open: func(t *testing.T, _ bool) sharedlog.Log {
			return open(t, s, strings.ReplaceAll(t.Name(), "/", "_"), o)
		},
		Suspend: func(o sharedlog.Lease) { o.(*lease).session.endRenewals() },
	})
}

// TestFenceIsDecidedByStream has a former owner whose clock stands still, so that its lease seems valid.
func TestFenceIsDecidedByStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	old := acquire(t, open(t, s, "main", single))
	appends(t, old, 1, 2)
	old.session.endRenewals()
	renewed := *old.session.sent.Load()
	o := acquire(t, open(t, s, "main", single))
	if took := o.session.sent.Load().since(renewed); took < testLease-margin || took > testLease+patience {
		t.Errorf("the log was free after %v", took)
	}
	appends(t, o, 3, 3)
	for n := range uint64(3) {
		old.invalid.Store(false)
		old.session.invalid.Store(false)
		old.session.sent.Store(&moment{time.Now().Add(time.Hour), time.Now().Add(time.Hour).Round(0)})
		if err := old.Append(t.Context(), 3, []byte("former")); !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("append of the former owner: %v", err)
		}
		appends(t, o, 4+n, 4+n)
	}
	if o.Newest() != 2 || o.Generation() != old.Generation()+1 {
		t.Errorf("record %d was the newest, generation %d follows %d", o.Newest(), o.Generation(), old.Generation())
	}
}

// TestOwnerKeepsTheLogWhileItLives has a second host that waits for more than the time of two leases.
func TestOwnerKeepsTheLogWhileItLives(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	o := acquire(t, open(t, s, "main", single))
	done := make(chan error, 1)
	go func() {
		l := open(t, s, "main", single)
		next, err := l.Acquire(t.Context())
		if err == nil && next.Generation() != 2 {
			err = fmt.Errorf("generation %d", next.Generation())
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("a second owner: %v", err)
	case <-o.Lost():
		t.Fatal("the lease was lost")
	case <-time.After(2*testLease + time.Second):
	}
	if !o.Valid() {
		t.Error("the lease is not valid")
	}
	appends(t, o, 1, 1)
	begun := time.Now()
	if err := o.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil || time.Since(begun) > testLease/2 { // before the key expires
		t.Errorf("%v after the release: %v", time.Since(begun), err)
	}
}

// TestAppendWithLostAnswer appends a message that is in the stream already, as after an attempt whose answer was lost.
func TestAppendWithLostAnswer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	large := bytes.Repeat([]byte("x"), o.size)
	f := frame{kindRecord, o.generation, 1, 0, 0, 1, large}
	if _, err := l.js.Publish(t.Context(), l.subject(), f.encode(), jetstream.WithExpectLastSequence(o.tail)); err != nil {
		t.Fatal(err)
	}
	if err := o.Append(t.Context(), 1, large); err != nil {
		t.Error(err)
	}
	appends(t, o, 2, 2)
	if info, err := l.stream.Info(t.Context()); err != nil || info.State.LastSeq != 3 {
		t.Errorf("the stream has %d messages, want the mark and two records: %v", info.State.LastSeq, err)
	}
}

// TestAppendWithoutServers also appends another record than the one of the failed attempt.
func TestAppendWithoutServers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 1)
	l.nc.Close()
	for range 2 {
		if err := o.Append(t.Context(), 2, record(2)); !errors.Is(err, sharedlog.ErrUnavailable) {
			t.Errorf("append without a connection: %v", err)
		}
	}
	if err := o.Append(t.Context(), 2, record(3)); err == nil || errors.Is(err, sharedlog.ErrUnavailable) {
		t.Errorf("append of another record: %v", err)
	}
}

// TestPartsOfAnUnfinishedRecordAreNoRecord has an owner that ends between two parts of a record.
func TestPartsOfAnUnfinishedRecordAreNoRecord(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	o := acquire(t, open(t, s, "main", single))
	appends(t, o, 1, 2)
	f := frame{kindRecord, o.generation, 3, 0, 0, 2, []byte("the first half")}
	if err := o.publish(t.Context(), f.encode()); err != nil {
		t.Fatal(err)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, open(t, s, "main", single))
	if next.Newest() != 2 {
		t.Fatalf("record %d is the newest, want 2", next.Newest())
	}
	appends(t, next, 3, 4)
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, acquire(t, open(t, s, "main", single)), 4)
}

// TestMessageThatIsMissingIsNamed deletes messages of the stream, which its configuration forbids.
func TestMessageThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 5)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.stream.DeleteMsg(t.Context(), 3); err == nil {
		t.Error("the stream lets clients delete a message")
	}
	if err := l.stream.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, l)
	var failure error
	for b, err := range next.Read(t.Context(), 1) {
		if failure = err; err == nil {
			t.Errorf("read %q", b)
		}
	}
	if failure == nil || !strings.Contains(failure.Error(), "missing message: record 1") {
		t.Errorf("a log without its first messages: %v", failure)
	}
}

func TestAssemblyRefusesDamage(t *testing.T) {
	mark := func(generation, number uint64) frame {
		return frame{kindMark, generation, number, 0, 0, 1, []byte("owner")}
	}
	record := func(generation, number uint64, part, parts uint32) frame {
		return frame{kindRecord, generation, number, 0, part, parts, fmt.Append(nil, number, part)}
	}
	for name, frames := range map[string][]frame{
		"repeated record":         {mark(1, 0), record(1, 1, 0, 1), record(1, 1, 0, 1)},
		"missing record":          {mark(1, 0), record(1, 1, 0, 1), record(1, 3, 0, 1)},
		"missing part":            {mark(1, 0), record(1, 1, 0, 3), record(1, 1, 2, 3)},
		"former owner":            {mark(1, 0), record(1, 1, 0, 1), mark(2, 1), record(1, 2, 0, 1)},
		"owner twice":             {mark(1, 0), mark(1, 0)},
		"owner of another record": {mark(1, 0), record(1, 1, 0, 1), mark(2, 0)},
		"first record missing":    {mark(1, 0), mark(2, 1)},
		"first part missing":      {record(1, 1, 1, 2)},
		"part beyond the last":    {{kindRecord, 1, 1, 0, 1, 1, nil}},
		"unknown kind":            {{'x', 1, 1, 0, 0, 1, nil}},
	} {
		a := assembly{next: 1}
		var err error
		for n, f := range frames {
			if err != nil {
				t.Fatalf("%s: message %d: %v", name, n, err)
			}
			_, _, err = a.add(f.encode())
		}
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := decodeFrame([]byte("dhn1r")); !errors.Is(err, errFrame) {
		t.Errorf("a short message: %v", err)
	}
}

// TestServersThatAreUnsafeAreRefused opens logs on a server that does not sync each message.
func TestServersThatAreUnsafeAreRefused(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "2m")
	nc, system := s.Connect(t, "app"), s.Connect(t, "system")
	for _, test := range []struct {
		want    string // in the error; empty for none
		options Options
	}{
		{"sync_interval: always", Options{Replicas: 1, UnsafeReplicas: true, System: system}},
		{"UnsafeReplicas", Options{Replicas: 2, System: system}},
		{"System is nil", Options{}},
		{"the system account", Options{Replicas: 1, UnsafeReplicas: true, System: nc}},
		{"LeaseTime 1s", Options{LeaseTime: time.Second, System: system}},
		{"LeaseTime 2.5s", Options{LeaseTime: 2500 * time.Millisecond, System: system}},
		{"", Options{Replicas: 1, UnsafeReplicas: true, UnsafeSync: true, System: system}},
		{"", Options{Replicas: 1, UnsafeReplicas: true, UnsafeSync: true}},
	} {
		_, err := Open(t.Context(), nc, "main", &test.options)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v, want %q", test.options, err, test.want)
		}
	}
	if _, err := Open(t.Context(), nc, "a.b", &single); err == nil {
		t.Error("a cell whose name is a subject of two parts was accepted")
	}
}

// TestBucketsOfOtherProgramsAreRefused opens a log with a bucket of another program.
func TestBucketsOfOtherProgramsAreRefused(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"":                         func(*jetstream.StreamConfig) {},
		"older messages of a key":  func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"all messages of a key":    func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 0 },
		"markers of expired keys":  func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Hour },
		"keys that never expire":   func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false },
		"reads of other servers":   func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"deletion of any messages": func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"a limit of all messages":  func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 },
	} {
		c := ownerStream(1)
		change(&c)
		if err := l.js.DeleteStream(t.Context(), c.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := l.js.CreateStream(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := l.makeStream(t.Context(), ownerStream(1))
		if refused := err != nil && strings.Contains(err.Error(), "another configuration"); refused != (name != "") {
			t.Errorf("a bucket with %q: %v", name, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, older := range map[string]bool{
		"2.15.2": false, "2.15.10": false, "2.16.0": false, "3.0.0": false, "2.15.1": true, "2.9.99": true, "1.99.99": true, "": true, "2.x.3": true, "2.15.3-dev": false,
	} {
		if olderThan(version, testedVersion) != older {
			t.Errorf("%q is older: %v", version, !older)
		}
	}
}

// record is the content of a record in these tests.
func record(n uint64) []byte { return fmt.Appendf(nil, "record %d", n) }

func appends(t *testing.T, o *lease, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := o.Append(t.Context(), n, record(n)); err != nil {
			t.Fatalf("append of record %d: %v", n, err)
		}
	}
}

// has checks that the log has records up to newest, and no other.
func has(t *testing.T, o *lease, newest uint64) {
	t.Helper()
	n := uint64(0)
	for b, err := range o.Read(t.Context(), 1) {
		if n++; err != nil || string(b) != string(record(n)) {
			t.Fatalf("record %d is %q, %v", n, b, err)
		}
	}
	if n != newest || o.Newest() != newest {
		t.Errorf("%d records were read, the newest is %d, want %d", n, o.Newest(), newest)
	}
}
