package budget

import "testing"

// waits reports whether a lease waits.
func (l *Lease) waits() bool { return l.of.waiter == l }

// lent returns the lent bytes of a lease.
func (l *Lease) lent() int64 {
	if o := l.loanLocked(); o != nil {
		return o.bytes
	}
	return 0
}

// held returns the bytes by the rule of a lease.
func (l *Lease) held() int64 { return l.total - l.lent() }

// TestReserveLendsInTurns has leases that wait. The reserve lends to one lease of an object at a time, and of these to the oldest wait,
// although a later one needs less. The objects take turns. A lease that the reserve has no bytes for keeps its turn.
func TestReserveLendsInTurns(t *testing.T) {
	b := New(400)
	holder := b.Lease(first)
	if holder.Take(Free+100, Free+100) != nil {
		t.Fatal("there are no bytes")
	}
	var all []*Lease
	done := map[*Lease]bool{}
	for _, tt := range []struct {
		o          Object
		size, most int64
	}{{first, 70, 80}, {first, 75, 90}, {second, 80, 90}, {first, 65, 65}, {Object{}, 70, 70}, {Object{}, 80, 101}} {
		l := b.Lease(tt.o)
		l.Take(Free+tt.size, Free+tt.most)
		all = append(all, l)
	}
	for i, next := range []int{0, 2, 4, 1, 3} {
		for j, l := range all {
			if l.waits() == (j == next || done[l]) {
				t.Errorf("step %d: lease %d has %d lent bytes, want them for lease %d alone", i, j, l.lent(), next)
			}
		}
		l := all[next]
		if l.lent() != b.lent || b.lent == 0 {
			t.Errorf("step %d: lease %d has %d lent bytes of %d", i, next, l.lent(), b.lent)
		}
		if l.Take(Free+l.lent(), 0) != nil {
			t.Errorf("step %d: a lease with lent bytes waits", i)
		}
		l.Release()
		done[l] = true
	}
	if b.lent != 0 || !all[5].waits() {
		t.Errorf("%d bytes are lent; the lease that needs more than the reserve waits: %t", b.lent, all[5].waits())
	}
}

// TestReserveLendsMoreToTheLeaseThatHasTheLentBytes has a lease that needs more bytes than were announced, after an older wait of its object, which
// gets nothing before the lease ends. The lease gets lent bytes up to all bytes of the reserve.
func TestReserveLendsMoreToTheLeaseThatHasTheLentBytes(t *testing.T) {
	b := New(400)
	b.fill(t)
	l, older, other := b.take(t, first, 60, 60), b.Lease(first), b.Lease(second)
	if older.Take(Free+70, Free+80) == nil || l.Take(Free+80, Free+101) == nil || l.lent() != 60 {
		t.Fatalf("%d bytes are lent", l.lent())
	}
	if other.Take(Free+40, Free+40); other.waits() {
		t.Error("the lease that needs more than the reserve keeps another object waiting")
	}
	other.Release()
	if l.Lower(Free+80, Free+100); l.waits() || l.lent() != 100 || !older.waits() {
		t.Errorf("the lease waits: %t, %d bytes are lent, the older one waits: %t", l.waits(), l.lent(), older.waits())
	}
	if l.Release(); older.waits() || older.lent() != 80 {
		t.Errorf("the older lease waits: %t, and has %d lent bytes", older.waits(), older.lent())
	}
}

// TestLeaseWithLentBytesWaitsForItsTurn has two objects that have all bytes of the reserve. A lease of one needs more.
func TestLeaseWithLentBytesWaitsForItsTurn(t *testing.T) {
	b := New(400)
	b.fill(t)
	l, other := b.take(t, first, 55, 55), b.take(t, second, 45, 45)
	if l.lent() != 55 || b.lent != 100 {
		t.Fatalf("%d bytes are lent", b.lent)
	}
	l.Take(Free+60, Free+75)
	if other.Lower(Free+26, Free+26); !l.waits() {
		t.Errorf("of the reserve %d bytes are lent", b.lent)
	}
	if other.Lower(Free+25, Free+25); l.waits() || l.total != 75 {
		t.Errorf("the lease waits, and has %d bytes", l.total)
	}
}

// TestLeaseThatHasMovedItsLentBytesWaits has a client with lent bytes for an item that is being handled: it gets no more for the next item.
func TestLeaseThatHasMovedItsLentBytesWaits(t *testing.T) {
	b := New(400)
	b.fill(t)
	l := b.take(t, first, 60, 60)
	moved := l.Move(Free + 60)
	if l.Take(Free+40, Free+40) == nil {
		t.Fatal("two leases of a client have lent bytes")
	}
	if moved.Release(); l.waits() || l.lent() != 40 {
		t.Errorf("the lease waits: %t, %d bytes are lent", l.waits(), l.lent())
	}
}

// TestMoveReturnsLentBytesThatAreNotNeeded has a frame that is smaller than announced.
func TestMoveReturnsLentBytesThatAreNotNeeded(t *testing.T) {
	b := New(400)
	holder, l := b.Lease(first), b.Lease(first)
	if holder.Take(Free+100, 0) != nil || l.Take(Free+20, Free+110) != nil || l.Take(Free+60, Free+110) != nil {
		t.Fatal("there are no bytes")
	}
	if l.held() != 20 || l.lent() != 90 {
		t.Errorf("the lease has %d bytes, and %d lent ones", l.held(), l.lent())
	}
	moved := l.Move(Free + 70)
	if moved.held() != 20 || moved.lent() != 50 || l.total != 0 || b.lent != 50 {
		t.Errorf("the moved lease has %d bytes, and %d lent ones of %d", moved.held(), moved.lent(), b.lent)
	}
	moved.Release()
	holder.Release()
	if u := b.Usage(); u.Used != 0 || len(b.groups) != 0 {
		t.Errorf("in the end: %+v, %d objects", u, len(b.groups))
	}
}

// TestLowerReturnsLentBytesFirst has a lease that needs fewer bytes, and then none beyond its size.
func TestLowerReturnsLentBytesFirst(t *testing.T) {
	b := New(400)
	holder, l := b.Lease(first), b.Lease(first)
	if holder.Take(Free+100, 0) != nil || l.Take(Free+30, Free+120) != nil || l.Take(Free+60, Free+120) != nil {
		t.Fatal("there are no bytes")
	}
	for _, tt := range []struct{ size, most, held, lent int64 }{
		{60, 120, 30, 90}, {20, 80, 30, 50}, {20, 20, 20, 0}, {10, 100, 10, 0},
	} {
		l.Lower(Free+tt.size, Free+tt.most)
		if l.held() != tt.held || l.lent() != tt.lent {
			t.Errorf("size %d, most %d: it has %d, and %d lent ones", tt.size, tt.most, l.held(), l.lent())
		}
	}
}

// TestLowerReducesTheLentBytesOfAWait has a lease that waits for its turn, and then needs fewer bytes in the end.
func TestLowerReducesTheLentBytesOfAWait(t *testing.T) {
	b := New(400)
	holder, lent, l := b.Lease(first), b.Lease(first), b.Lease(first)
	if holder.Take(Free+100, 0) != nil || lent.Take(Free+70, 0) != nil || l.Take(Free+80, Free+100) == nil {
		t.Fatal("the third lease does not wait")
	}
	l.Lower(Free+80, Free+90)
	lent.Release()
	if l.held() != 0 || l.lent() != 90 {
		t.Errorf("the lease has %d bytes, and %d lent ones", l.held(), l.lent())
	}
}

// TestObjectWithLentBytesHasAnEntry has an object with two clients, and releases the client without lent bytes. Another object has bytes by the rule.
func TestObjectWithLentBytesHasAnEntry(t *testing.T) {
	b := New(400)
	holder, lent, other := b.Lease(second), b.Lease(first), b.Lease(first)
	if holder.Take(Free+100, 0) != nil || lent.Take(Free+70, 0) != nil || other.Take(Free+1, 0) != nil {
		t.Fatal("there are no bytes")
	}
	other.Release()
	if b.groups[first] != lent.of.group || lent.lent() != 70 || lent.Idle() {
		t.Errorf("%d objects have an entry", len(b.groups))
	}
	lent.Release()
	holder.Release()
	if len(b.groups) != 0 || !lent.Idle() {
		t.Errorf("in the end %d objects have an entry", len(b.groups))
	}
}
