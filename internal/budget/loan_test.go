package budget

import "testing"

// take makes a lease of an object cover n bytes in addition to Free, without a wait.
func (b *Budget) take(t *testing.T, o Object, n, most int64) *Lease {
	t.Helper()
	l := b.Lease(o)
	if l.Take(Free+n, Free+most) != nil {
		t.Fatalf("there are no %d bytes", n)
	}
	return l
}

// fill takes all bytes of the share of the rule except 2, for many objects.
func (b *Budget) fill(t *testing.T) {
	t.Helper()
	for free := b.share; free >= 3; free -= free / 3 {
		b.take(t, Object{}, free/3, free/3)
	}
}

// wantLent checks the lent bytes of a lease and of its budget.
func (l *Lease) wantLent(t *testing.T, what string, lent, total int64) {
	t.Helper()
	b := l.of.budget
	if l.lent() != lent || b.lent != lent || l.total != total || len(b.loans) != int(min(lent, 1)) {
		t.Errorf("%s: %d bytes of %d are lent, and %d of all leases, want %d of %d", what, l.lent(), l.total, b.lent, lent, total)
	}
}

// TestLentBytesBecomeBytesByTheRule has a lease that is never released, with one lent byte. Then another lease returns as many bytes as the rule
// needs for it, and one less before. The reserve then lends bytes to the next lease of the object.
func TestLentBytesBecomeBytesByTheRule(t *testing.T) {
	b := New(400)
	holder, kept := b.take(t, first, 100, 100), b.take(t, first, 33, 33)
	if kept.Take(Free+34, Free+34) != nil { // 133 + 133 + 33 + 3 > 300
		t.Fatal("the reserve has no byte")
	}
	kept.wantLent(t, "at first", 1, 34)
	later := b.Lease(first)
	if later.Take(Free+50, Free+60) == nil {
		t.Fatal("two leases of an object have lent bytes")
	}
	holder.Lower(Free+100, Free+100)
	kept.wantLent(t, "before its bytes are free", 1, 34)
	holder.Lower(Free+99, Free+99) // 132 + 132 + 33 + 3 = 300
	if kept.lent() != 0 || b.used != 133 || kept.of.used != 34 {
		t.Errorf("the lease has %d lent bytes, its client %d by the rule, of %d", kept.lent(), kept.of.used, b.used)
	}
	later.wantLent(t, "the next lease", 60, 60)
	if kept.total != 34 || later.waits() {
		t.Errorf("the lease has %d bytes, and the next one waits: %t", kept.total, later.waits())
	}
	for _, l := range []*Lease{later, kept, holder} {
		l.Release()
	}
	if u := b.Usage(); u.Used != 0 || len(b.groups) != 0 {
		t.Errorf("in the end %+v, and %d objects have an entry", u, len(b.groups))
	}
}

// TestLentBytesBecomeBytesByTheRuleTogether has a lease with 70 lent bytes: they become bytes by the rule when it allows all of them.
func TestLentBytesBecomeBytesByTheRuleTogether(t *testing.T) {
	b := New(400)
	holder, l := b.take(t, first, 100, 100), b.take(t, first, 70, 70)
	for _, tt := range []struct{ size, lent int64 }{{100, 70}, {46, 70}, {45, 0}} { // 2 * 45 + 3 * 70 = 300
		holder.Lower(Free+tt.size, Free+tt.size)
		l.wantLent(t, "size", tt.lent, 70)
	}
	if b.used != 115 {
		t.Errorf("%d bytes are counted by the rule", b.used)
	}
}

// TestLargestLeaseBecomesBytesByTheRule has the largest lease in a budget that is otherwise unused.
func TestLargestLeaseBecomesBytesByTheRule(t *testing.T) {
	b := New(400)
	holder, l := b.take(t, second, 50, 50), b.take(t, first, 80, 80)
	if l.Take(b.Largest(), b.Largest()) != nil { // 130 + 80 + 80 + 3*20 > 300
		t.Fatal("there are no bytes")
	}
	l.wantLent(t, "at first", 20, 100)
	holder.Lower(Free+1, Free+1)
	l.wantLent(t, "while a byte is in use", 20, 100)
	holder.Release()
	l.wantLent(t, "while it is alone", 0, 100)
	if b.used != 100 {
		t.Errorf("%d bytes are counted by the rule", b.used)
	}
}

// TestSmallestLoanBecomesBytesByTheRuleFirst has two objects with lent bytes. The rule allows the bytes of the second one first.
func TestSmallestLoanBecomesBytesByTheRuleFirst(t *testing.T) {
	b := New(400)
	holder, other := b.take(t, Object{}, 100, 100), b.take(t, Object{}, 60, 60)
	b.take(t, Object{}, 22, 22)
	large, less := b.take(t, first, 60, 60), b.take(t, second, 40, 40)
	for _, tt := range []struct{ size, large, less, used int64 }{
		{100, 60, 40, 182},
		{99, 60, 40, 181},
		{98, 60, 0, 220}, // 180 + 3*40 = 300
		{59, 60, 0, 181},
		{0, 60, 0, 122},
	} {
		if holder.Lower(Free+tt.size, Free+tt.size); large.lent() != tt.large || less.lent() != tt.less || b.used != tt.used || b.lent != tt.large+tt.less {
			t.Errorf("size %d: %d and %d bytes are lent, and %d are in use by the rule", tt.size, large.lent(), less.lent(), b.used)
		}
	}
	if other.Lower(Free+58, Free+58); large.lent() != 0 || b.used != 180 || b.lent != 0 { // 120 + 3*60 = 300
		t.Errorf("%d bytes are lent; %d are in use by the rule", large.lent(), b.used)
	}
}

// TestLentBytesBecomeBytesByTheRuleBeforeAWaitEnds has a lease that waits for fewer bytes than are lent. The rule allows one of both.
func TestLentBytesBecomeBytesByTheRuleBeforeAWaitEnds(t *testing.T) {
	b := New(400)
	holder, kept := b.take(t, first, 100, 100), b.take(t, first, 70, 70)
	later := b.Lease(first)
	if later.Take(Free+50, unlent) == nil {
		t.Fatal("the lease does not wait")
	}
	holder.Lower(Free+45, Free+45) // in one step: 2*45 + 3*70 = 300
	if kept.lent() != 0 || !later.waits() {
		t.Errorf("%d bytes are lent, and the lease that waits for bytes by the rule still waits: %t", kept.lent(), later.waits())
	}
}

// TestLeaseKeepsAnnouncedBytesByTheRule has a lease with bytes for the rest of its item. They become bytes by the rule before the rest
// arrives: the lease keeps them until then. After that it returns the bytes that it does not need.
func TestLeaseKeepsAnnouncedBytesByTheRule(t *testing.T) {
	for name, end := range map[string]func(l *Lease) *Lease{
		"Lower": func(l *Lease) *Lease { l.Lower(Free+60, Free+60); return l },
		"Move":  func(l *Lease) *Lease { return l.Move(Free + 60) },
	} {
		b := New(400)
		holder, l := b.take(t, first, 100, 100), b.Lease(first)
		if l.Take(Free+50, Free+90) != nil || l.lent() != 90 {
			t.Fatalf("%s: %d bytes are lent", name, l.lent())
		}
		holder.Release()
		for _, tt := range []struct{ size, most, total int64 }{{50, 90, 90}, {50, 80, 80}, {70, 80, 80}} {
			l.Lower(Free+tt.size, Free+tt.most)
			l.wantLent(t, name, 0, tt.total)
		}
		if l = end(l); l.total != 60 || b.used != 60 {
			t.Errorf("%s: the lease has %d bytes, %d are counted", name, l.total, b.used)
		}
		if l.Lower(Free+50, Free+90); l.total != 50 {
			t.Errorf("%s: after the item the lease has %d bytes, want 50", name, l.total)
		}
	}
}

// TestLeaseKeepsNoBytesBeyondAnnouncedOnes has a lease that needs more than was announced, which the rule allows: it is not the lease of an item
// that the reserve has lent all bytes to.
func TestLeaseKeepsNoBytesBeyondAnnouncedOnes(t *testing.T) {
	b := New(400)
	holder, l := b.take(t, first, 100, 100), b.take(t, first, 70, 70)
	holder.Release()
	if l.Take(Free+80, Free+100) != nil || l.total != 80 {
		t.Fatalf("the lease has %d bytes", l.total)
	}
	if l.Lower(Free+75, Free+100); l.total != 75 {
		t.Errorf("the lease has %d bytes, want 75", l.total)
	}
}

// TestLeaseThatIsMovedKeepsItsLentBytes has a lease that moves lent bytes: they become bytes by the rule of the new lease.
func TestLeaseThatIsMovedKeepsItsLentBytes(t *testing.T) {
	b := New(400)
	holder, l := b.take(t, first, 100, 100), b.take(t, first, 70, 70)
	moved := l.Move(Free + 70)
	moved.wantLent(t, "moved", 70, 70)
	if l.total != 0 || l.lent() != 0 {
		t.Errorf("the first lease has %d bytes", l.total)
	}
	holder.Release()
	moved.wantLent(t, "by the rule", 0, 70)
	if b.used != 70 || moved.of.used != 70 {
		t.Errorf("%d bytes are counted, %d for the client", b.used, moved.of.used)
	}
	moved.Release()
	if len(b.groups) != 0 || !l.Idle() {
		t.Errorf("%d objects have an entry", len(b.groups))
	}
}

// TestLoansAreOrderedAfterAChange has two objects with lent bytes. The need of the first one is the smaller one, until another lease of it gets bytes.
func TestLoansAreOrderedAfterAChange(t *testing.T) {
	b := New(400)
	holder := b.take(t, Object{}, 100, 100)
	b.take(t, Object{}, 60, 60)
	b.take(t, Object{}, 10, 10)
	l, next := b.take(t, first, 45, 45), b.take(t, second, 50, 50)
	b.take(t, first, 20, 20)
	if l.lent() != 45 || next.lent() != 50 {
		t.Fatalf("%d and %d bytes are lent", l.lent(), next.lent())
	}
	holder.Lower(Free+60, Free+60) // 150 + 3*50 = 300, and 150 + 20 + 3*45 = 305
	if l.lent() != 45 || next.lent() != 0 {
		t.Errorf("%d and %d bytes are lent, want 45 and 0", l.lent(), next.lent())
	}
}

// TestLeaseWithLentBytesKeepsAnnouncedOnes has a lease with lent bytes that gets more by the rule, for the next item.
func TestLeaseWithLentBytesKeepsAnnouncedOnes(t *testing.T) {
	b := New(400)
	holder, l := b.take(t, first, 100, 100), b.take(t, first, 70, 70)
	holder.Lower(Free+46, Free+46)
	if l.Take(Free+80, Free+100) != nil || l.held() != 10 {
		t.Fatalf("the lease has %d bytes by the rule", l.held())
	}
	l.Lower(Free+60, Free+75)
	l.wantLent(t, "of the next item", 65, 75)
	l.Lower(Free+60, Free+60)
	l.wantLent(t, "of all items", 0, 60) // 56 + 56 + 10 + 3*50 < 300
}
