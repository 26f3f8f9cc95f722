package natslog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

// unhurried are options for nodes whose sessions do not expire during a test.
var unhurried = Options{Replicas: 1, UnsafeReplicas: true, LeaseTime: 5 * time.Minute}

// notFree checks that a node cannot acquire a cell now.
func notFree(t *testing.T, n *testNode, cell int) {
	t.Helper()
	if o, err := n.log(t, cell).tryAcquire(t.Context()); !errors.Is(err, errOwned) {
		t.Errorf("an attempt to acquire cell %d: %v, %v", cell, o, err)
	}
}

// free acquires a cell without waiting for an owner.
func free(t *testing.T, n *testNode, cell int) *lease {
	t.Helper()
	o, err := n.log(t, cell).tryAcquire(t.Context())
	if err != nil {
		t.Fatalf("cell %d is not free: %v", cell, err)
	}
	return o
}

func isLost(o *lease) bool {
	select {
	case <-o.Lost():
		return true
	default:
		return false
	}
}

func fenced(t *testing.T, leases ...*lease) {
	t.Helper()
	for _, o := range leases {
		err := o.Append(t.Context(), o.number+1, record(o.number+1))
		if o.Valid() || !isLost(o) || !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("the lease of cell %s is valid %v, lost %v; append: %v", o.log.cell, o.Valid(), isLost(o), err)
		}
	}
}

// TestRenewalIsOneForAllCells counts the messages in the bucket while a node with 16 cells renews its record.
func TestRenewalIsOneForAllCells(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	n := joinNode(t, s, "main", unhurried)
	var leases []*lease
	for cell := range nodeCells {
		leases = append(leases, free(t, n, cell))
	}
	const end = "test.end"
	messages, watcher := make(chan *nats.Msg, 64), s.Connect(t, "app")
	for _, subject := range []string{keySubject(">"), end} {
		if _, err := watcher.ChanSubscribe(subject, messages); err != nil {
			t.Fatal(err)
		}
	}
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	const times = 5
	for range times {
		before := n.own.sent.Load()
		n.renew(t)
		for _, o := range leases {
			if !o.Valid() || o.session.sent.Load() == before {
				t.Fatalf("cell %s was not renewed", o.log.cell)
			}
		}
	}
	if err := n.Table.log.nc.Publish(end, nil); err != nil {
		t.Fatal(err)
	}
	count := 0
	for m := range messages {
		if m.Subject == end {
			break
		}
		if count++; m.Subject != keySubject(n.own.name) {
			t.Errorf("a message of %s", m.Subject)
		}
	}
	if count != times {
		t.Errorf("%d messages for %d renewals of %d cells", count, times, len(leases))
	}
}

// TestNodeThatStallsLosesAllCells has a node whose record is not renewed any more, and another one that acquires the cells.
func TestNodeThatStallsLosesAllCells(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	old, next := startNode(t, s, "main", single), startNode(t, s, "main", single)
	var leases []*lease
	for cell := range 3 {
		leases = append(leases, acquire(t, old.log(t, cell)))
	}
	appends(t, leases[0], 1, 2)
	suspendNode(old.Table)
	o := acquire(t, next.log(t, 0))
	for _, former := range leases {
		if former.Valid() {
			t.Errorf("the lease of cell %s is valid, and cell 0 has another owner", former.log.cell)
		}
	}
	for _, former := range leases {
		<-former.Lost()
	}
	fenced(t, leases...)
	if err := old.own.renew(t.Context()); !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("a renewal of the former session: %v", err)
	}
	has(t, o, 2)
	acquire(t, next.log(t, 1))
	old.renew(t) // begins another session
	again := acquire(t, old.log(t, 2))
	fenced(t, leases...)
	appends(t, again, 1, 1)
}

// TestLeaveFreesAllCells has a node that ends in good order, and has not released its cells.
func TestLeaveFreesAllCells(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	old, next := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	leases := []*lease{free(t, old, 0), free(t, old, 1)}
	appends(t, leases[1], 1, 3)
	if len(read(t, next.Table).Members) != 2 {
		t.Error("want two members")
	}
	if err := old.Leave(t.Context(), old.member.ID); err != nil {
		t.Fatal(err)
	}
	fenced(t, leases...)
	if members := read(t, next.Table).Members; len(members) != 1 || members[0] != next.member {
		t.Errorf("the members are %v", members)
	}
	for cell := range leases {
		free(t, next, cell)
	}
	if _, err := old.log(t, 2).tryAcquire(t.Context()); !errors.Is(err, errTooLate) {
		t.Errorf("the node has acquired a cell after it has left: %v", err)
	}
}

// TestReleaseOfOneCell has a node that keeps another cell, and acquires the first one again later.
func TestReleaseOfOneCell(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	first, second := free(t, a, 0), free(t, a, 1)
	appends(t, first, 1, 2)
	notFree(t, b, 0)
	notFree(t, a, 0) // its own lease counts, too
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.Valid() || isLost(first) {
		t.Errorf("after its release the lease is valid %v, lost %v", first.Valid(), isLost(first))
	}
	o := free(t, b, 0)
	has(t, o, 2)
	notFree(t, b, 1)
	appends(t, second, 1, 1)
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	a.renew(t)
	if !o.Valid() || !second.Valid() {
		t.Error("the leases are not valid")
	}
	notFree(t, a, 0)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	free(t, a, 0)
}

// oldRead is a bucket with a former leader that answers the first read of one key.
type oldRead struct {
	jetstream.Stream
	name    string
	message *jetstream.RawStreamMsg // nil if the key did not exist
	read    bool
}

func (r *oldRead) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if r.read || subject != keySubject(r.name) {
		return r.Stream.GetLastMsgForSubject(ctx, subject)
	}
	if r.read = true; r.message == nil {
		return nil, jetstream.ErrMsgNotFound
	}
	return r.message, nil
}

// TestReadsOfOldKeysMakeNoSecondLease has a node that reads that a session has no key, or that a cell has a former owner or none.
func TestReadsOfOldKeysMakeNoSecondLease(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	l := b.log(t, 0)
	old := []*jetstream.RawStreamMsg{nil} // the messages of the owner's key
	now := func() *jetstream.RawStreamMsg {
		t.Helper()
		m, err := l.key(t.Context(), l.cell)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for range 2 {
		o := free(t, a, 0)
		old = append(old, now())
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		old = append(old, now())
	}
	o := free(t, a, 0)
	bucket := l.owners
	l.owners = &oldRead{Stream: bucket, name: a.own.name}
	if _, err := l.tryAcquire(t.Context()); !errors.Is(err, errOwned) {
		t.Errorf("the session has no key in an old read: %v", err)
	}
	for n, m := range old {
		l.owners = &oldRead{Stream: bucket, name: l.cell, message: m}
		if _, err := l.tryAcquire(t.Context()); !errors.Is(err, errOwned) {
			t.Errorf("message %d of the owner's key is read: %v", n, err)
		}
	}
	a.renew(t)
	appends(t, o, 1, 1)
}

// TestSessionThatHasEndedStaysEnded has a renewal that arrives after the key has expired, and after the mark of the end has expired.
func TestSessionThatHasEndedStaysEnded(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	l, o := b.log(t, 0), free(t, a, 0)
	expire := func() {
		t.Helper()
		if err := l.owners.Purge(t.Context(), jetstream.WithPurgeSubject(keySubject(a.own.name))); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string) {
		t.Helper()
		if _, err := l.put(t.Context(), a.own.name, a.own.data, a.own.revision, time.Minute); !isRefused(err) {
			t.Errorf("a renewal %s: %v", when, err)
		}
	}
	expire()
	for n := range 2 { // a second host finds the mark
		if ended, err := l.endAbsent(t.Context(), a.own.name); err != nil || !ended {
			t.Fatalf("host %d: the session has ended %v, %v", n, ended, err)
		}
		refused("after the mark")
	}
	expire()
	refused("after the end of the mark")
	free(t, b, 0)
	if err := a.Renew(t.Context(), a.member); !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("a renewal of the node: %v", err)
	}
	fenced(t, o)
	if members := read(t, b.Table).Members; len(members) != 1 {
		t.Errorf("the members are %v", members)
	}
}

// TestSessionWithLostAnswers has writes that the servers have accepted already, as after attempts whose answers were lost.
func TestSessionWithLostAnswers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	n := openTable(t, s, "main", unhurried)
	l := n.log
	x := l.newSession(ofMember, []byte("{}"))
	if _, err := l.put(t.Context(), x.name, x.data, 0, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := x.begin(t.Context()); err != nil || !x.valid() {
		t.Fatalf("the beginning: %v", err)
	}
	for range 2 {
		if _, err := l.put(t.Context(), x.name, x.data, x.revision, time.Minute); err != nil {
			t.Fatal(err)
		}
		before := x.sent.Load()
		if err := x.renew(t.Context()); err != nil || !x.valid() || x.sent.Load() == before {
			t.Fatalf("a renewal: %v", err)
		}
	}
	o := &lease{log: l, session: x, owner: "owner", lost: make(chan struct{})}
	x.add(o)
	if _, err := l.put(t.Context(), l.cell, []byte(o.value()), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := o.takeKey(t.Context()); err != nil {
		t.Errorf("the key of the owner: %v", err)
	}
	if _, err := l.deleteKey(t.Context(), l.cell, o.revision, 0); err != nil {
		t.Fatal(err)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Errorf("the release of the cell: %v", err)
	}
	if _, err := l.deleteKey(t.Context(), x.name, x.revision, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := x.renew(t.Context()); !errors.Is(err, sharedlog.ErrFenced) || x.valid() {
		t.Errorf("a renewal after the end: %v", err)
	}
	if err := x.end(t.Context()); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestRenewalRepeatsARelease has releases that fail, since their contexts end.
func TestRenewalRepeatsARelease(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	leases := []*lease{free(t, a, 0), free(t, a, 1), free(t, a, 2)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for cell, o := range leases[:2] {
		o.invalid.Store(true)
		o.session.remove(o)
		if err := o.session.free(ctx, o); err == nil {
			t.Fatal("a release has succeeded without a context")
		}
		notFree(t, b, cell)
	}
	leases[2].lose() // as after an append that was refused; the host is never closed
	own := free(t, a, 1)
	a.renew(t)
	notFree(t, b, 1)
	for _, cell := range []int{0, 2} {
		free(t, b, cell)
	}
	if !own.Valid() || len(a.own.ended) > 0 {
		t.Errorf("the lease of cell 1 is valid %v; %d releases are repeated", own.Valid(), len(a.own.ended))
	}
}

// TestAcquisitionThatIsAbandonedWritesLate has a node that gives up an acquisition, and then the write of the owner's key arrives.
func TestAcquisitionThatIsAbandonedWritesLate(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	for _, revision := range []uint64{0, 1} {
		l := a.log(t, int(revision))
		if revision > 0 { // the log had an owner
			if err := free(t, a, 1).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			m, err := l.key(t.Context(), l.cell)
			if err != nil || !isDeleted(m) {
				t.Fatalf("the key is %q, %v", m.Data, err)
			}
			revision = m.Sequence
		}
		o := &lease{log: l, session: a.own, owner: "abandoned", revision: revision, lost: make(chan struct{})}
		a.own.add(o)
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.put(t.Context(), l.cell, []byte(o.value()), revision, 0); !isRefused(err) {
			t.Errorf("a late write after revision %d: %v", revision, err)
		}
	}
	free(t, b, 0)
	free(t, b, 1)
}

// TestAcquisitionThatIsCanceledLeavesNoOwner has an acquisition that ends after it has the key of the owner.
func TestAcquisitionThatIsCanceledLeavesNoOwner(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), joinNode(t, s, "main", unhurried)
	l := a.log(t, 0)
	if _, err := l.js.Publish(t.Context(), l.subject(), []byte("no mark")); err != nil { // the mark cannot follow it
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context()); !errors.Is(err, errDamaged) {
		t.Errorf("the acquisition: %v", err)
	}
	if _, err := b.log(t, 0).findFree(t.Context(), b.own); err != nil || len(a.own.leases) > 0 {
		t.Errorf("the log is not free: %v", err)
	}
}

// TestOwnerKeyWithDamage has values that name no session: no host writes to a key that such a value names. The cell is free when the key
// is deleted.
func TestOwnerKeyWithDamage(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	n := joinNode(t, s, "main", unhurried)
	for cell, value := range []string{"", "owner", "owner main.plan", "owner main.member.*", "owner " + n.own.name + "x"} {
		l := n.log(t, cell)
		if _, err := l.put(t.Context(), l.cell, []byte(value), 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context()); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("%q", value)) {
			t.Errorf("the value %q: %v", value, err)
		}
		bucket, err := l.js.KeyValue(t.Context(), "dohost")
		if err != nil {
			t.Fatal(err)
		}
		if err := bucket.Delete(t.Context(), l.cell); err != nil { // by an operator
			t.Fatal(err)
		}
		free(t, n, cell)
	}
}

// TestClockThatIsAheadEndsTheSession moves each of the clocks after a renewal, without servers.
func TestClockThatIsAheadEndsTheSession(t *testing.T) {
	l := &Log{options: Options{LeaseTime: time.Minute}}
	for name, passed := range map[string]struct{ monotonic, wall time.Duration }{
		"the monotonic clock stood still": {0, time.Hour},
		"the wall clock was set back":     {time.Hour, -time.Hour},
		"both":                            {time.Hour, time.Hour},
	} {
		s := l.newSession(ofMember, nil)
		leases := []*lease{{session: s, owner: "a"}, {session: s, owner: "b"}}
		for _, o := range leases {
			s.add(o)
		}
		good := now()
		s.sent.Store(&good)
		if !leases[0].Valid() {
			t.Errorf("%s: the lease is not valid before its deadline", name)
		}
		s.sent.Store(&moment{good.monotonic.Add(-passed.monotonic), good.wall.Add(-passed.wall)})
		for n, o := range leases {
			if o.Valid() {
				t.Errorf("%s: lease %d is valid", name, n)
			}
			s.sent.Store(&good) // a renewal that is acknowledged too late
		}
	}
}

// TestRenewalThatIsLateEndsTheSession has a session whose deadline has passed when it is renewed, although the servers would accept the renewal.
func TestRenewalThatIsLateEndsTheSession(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	n := joinNode(t, s, "main", unhurried)
	o, revision := free(t, n, 1), n.own.revision
	past := moment{time.Now().Add(-unhurried.LeaseTime), time.Now().Round(0)}
	n.own.sent.Store(&past)
	if err := n.own.renew(t.Context()); !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("the renewal: %v", err)
	}
	m, err := n.Table.log.key(t.Context(), n.own.name)
	if err != nil || m.Sequence != revision {
		t.Errorf("the session was renewed: revision %d, want %d; %v", m.Sequence, revision, err)
	}
	fenced(t, o)
	former := n.own
	n.renew(t)
	if n.own == former || !n.own.valid() {
		t.Error("the node has no new session")
	}
	o = free(t, n, 0)
	n.own.sent.Store(&past)
	n.renew(t)
	fenced(t, o)
	if members := read(t, n.Table).Members; len(members) != 1 {
		t.Errorf("the node counts as %v", members)
	}
}

// TestLeaseThatIsLostEndsTheSessionOfOneLog has a log without a table.
func TestLeaseThatIsLostEndsTheSessionOfOneLog(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	o := acquire(t, open(t, s, "main", single))
	o.lose()
	<-o.session.renewed
}

// TestNodeRestartedHasItsCellsImmediately ends the session of a node long before the key expires.
func TestNodeRestartedHasItsCellsImmediately(t *testing.T) {
	t.Parallel()
	o := unhurried
	o.LeaseTime = 10 * patience
	a := joinNode(t, natstest.Start(t, 1, "always"), "main", o)
	l := a.log(t, 0)
	first := acquire(t, l)
	a.session().lose()
	a.renew(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	second, err := l.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if first.Valid() || !second.Valid() {
		t.Errorf("the first lease is valid: %v, the second one: %v", first.Valid(), second.Valid())
	}
	if members := read(t, a.Table).Members; len(members) != 1 || members[0] != a.member {
		t.Errorf("the members are %v", members)
	}
}
