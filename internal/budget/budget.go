// Package budget bounds the bytes that the frames and the request bodies of all clients occupy together. It divides three
// quarters of them, the share of the rule, among the objects that the clients use, and the bytes of an object among its clients.
// The last quarter is the reserve.
//
// A [Lease] has the bytes of one frame or body that a client sends to an object. A lease gets more bytes by the rule only if afterwards
//
//	bytes of all leases + bytes of the leases of its object + bytes of the leases of its client <= share of the rule
//
// In other words, at least as many bytes must stay free as the object's plus the client's bytes. So the leases of one object have at most half of
// the share, and the leases of a further object at most half of the rest. n objects that take bytes one after the other leave 1/2^n, and n objects
// that take them in turns 1/(n+1). A lease of m bytes for an object without others needs 3m free bytes: the leases of one client have at most a
// third of the share. A lease larger than [Budget.Largest] never gets its bytes. The bytes that a lease has are not taken away, so clients that use
// many objects at the same time can use up the budget. Bytes by the rule go first to the waiting client with the smallest need, the left side of the
// rule after its wait; of equal needs, the oldest wait ends first.
//
// A lease grows while its frame or body arrives, and keeps its bytes while it waits for more. By the rule alone the leases of an object could
// all wait for each other, and a large lease could wait without end while smaller ones get their bytes. So the reserve lends
// a lease that waits all the bytes that it may need in the end, not only the next ones. Lent bytes do not count in the rule. The invariants:
//
//   - The bytes by the rule are at most the share of the rule, and the lent bytes at most the reserve. Together they are within the limit.
//   - A lease with lent bytes does not wait, unless it needs more than its owner has announced. So leases with lent bytes do not wait for
//     each other, and such a lease ends if its client sends the bytes, and its handler returns. The edge of a cluster announces one frame
//     and reads the next one with the same lease: that lease then waits with the lent bytes of frames that have arrived. Such leases may
//     wait for each other until an object acknowledges the frames, or a wait fails.
//   - If a lease with lent bytes waits, the reserve lends it more in the turn of its object, unless its loan would
//     exceed the reserve. So no lease waits for its own lent bytes while the reserve has enough, and a lease that needs
//     more than the reserve has no turn.
//   - A lease that may need more bytes than the reserve, in addition to those it has, waits for bytes by the rule alone. So a budget must be four
//     times as large as the largest buffer for an item, with all that its owner counts for it.
//   - Lent bytes become bytes by the rule as soon as the rule allows all lent bytes of the lease, the smallest need first, before a wait for bytes by
//     the rule ends. The lease then has as many bytes as before, and the reserve has its bytes again. So a lease that does not end, and has at most a
//     third of the share, keeps the reserve from its object only while other leases use the share.
//   - A lease keeps the bytes that the reserve has lent it for the rest of its item, also after they have become bytes by the rule.
//   - One lease of an object has lent bytes at a time. So clients of one object that handles nothing have, beyond its
//     half of the share, the lent bytes of one lease, and leave the rest of the reserve to other objects.
//   - The objects take turns, and in its turn an object gets lent bytes for its oldest wait, unless another of its leases already has them:
//     then only for that lease. So every lease that waits gets its bytes if the leases with lent bytes end, and if it waits for long enough. A
//     lease of an edge does not end while its client sends one large frame after the other, each before the acknowledgment of the last, and the
//     share of the rule is in use.
//
// A lease that does not end keeps its bytes. So the owner of the lease, or its server, must limit the time for a frame
// or a body to arrive.
//
// If the bytes are not available, a client waits for at most [Wait], except in [Lease.Await]. A client that gives up releases its own bytes.
//
// Budget.mu guards all bytes, except that the owner of a lease reads their sum, Lease.total, without the lock. Only the methods of the lease
// and the end of its wait change the sum. A conversion changes the loan of the object and the bytes by the rule of the client, which no owner
// reads. Move changes the lease of the loan, so it takes the lock.
//
// Clients choose the names of objects, so a budget has an entry for an object only while leases of the object have bytes
// or wait.
package budget

import (
	"container/heap"
	"container/list"
	"errors"
	"sync"
	"time"
)

// Free is how many bytes of each lease are not counted, so that small messages pass when large ones have exhausted the
// budget. The number of connections bounds their sum.
const Free = 4 << 10

// Wait is the longest time that a client waits for bytes.
const Wait = 10 * time.Second

// ErrExhausted reports that the bytes were not available within Wait.
var ErrExhausted = errors.New("the read budget of the host has no bytes for this object and client")

// Usage is a budget at one moment.
type Usage struct {
	Used, Limit int64  // bytes
	Refused     uint64 // leases that waited in vain, or lost their bytes
}

// Budget is a number of bytes. Its methods may be called from any goroutine.
type Budget struct {
	share   int64 // of the rule
	reserve int64

	mu      sync.Mutex // guards the rest, all groups, and all clients with their leases; no lock is taken while it is held
	used    int64      // by the rule
	lent    int64
	groups  map[Object]*group // groups with bytes or with clients that wait; unknown objects are not in it
	waiting waitHeap[*group]  // groups with clients that wait
	waits   uint64            // the number of waits that have begun
	loans   waitHeap[*loan]   // of groups with lent bytes
	turns   list.List         // the groups that are to get lent bytes, in the order of their turns

	refusals refusals
}

// Object names an object. The zero Object is unknown, and counts as a different object for each client.
type Object struct{ Class, Name string }

// String returns the class and the name; "" if the object is unknown.
func (o Object) String() string {
	if o == (Object{}) {
		return ""
	}
	return o.Class + "/" + o.Name
}

// group has the bytes of the clients of an object.
type group struct {
	used    int64 // by the rule
	loan    *loan // nil if no lease has lent bytes
	waiting waitHeap[*client]
	at      int           // the index in Budget.waiting
	oldest  list.List     // the clients of waiting that the reserve can lend their bytes, the oldest wait first
	turn    *list.Element // of Budget.turns; nil if borrowerLocked returns nil
}

// client has the bytes of the leases of a client.
type client struct {
	budget *Budget
	object Object
	group  *group // nil if it has no bytes and does not wait
	used   int64  // by the rule
	first  Lease

	// The wait; at most one lease of the client waits.
	ready  chan struct{} // closed when the wait ends; nil if no lease waits
	waiter *Lease
	more   int64         // the bytes that waiter waits for
	rest   int64         // the bytes that waiter may need in the end, in addition to those it has
	since  uint64        // the number of the wait
	at     int           // the index in group.waiting
	place  *list.Element // of group.oldest; nil if rest was more than the reserve
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget {
	return &Budget{share: limit - limit/4, reserve: limit / 4, groups: map[Object]*group{}}
}

// Usage returns how much of the budget is in use.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{Used: b.used + b.lent, Limit: b.share + b.reserve, Refused: b.refusals.count}
}

// Largest returns the largest size of a lease. A lease gets that size only if the share of the rule or the reserve is otherwise unused.
func (b *Budget) Largest() int64 { return b.reserve + Free }

// refuse counts a lease that is too large.
func (b *Budget) refuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusals.count++
}

// joinLocked sets the group of a client that has none.
func (b *Budget) joinLocked(c *client) {
	if c.group != nil {
		return
	}
	if c.group = b.groups[c.object]; c.group != nil {
		return
	}
	c.group = &group{}
	if c.object != (Object{}) {
		b.groups[c.object] = c.group
	}
}

// leaveLocked removes a client from its group if the client has no bytes and does not wait.
func (b *Budget) leaveLocked(c *client) {
	if c.group == nil || c.used > 0 || c.lent() > 0 || c.ready != nil {
		return
	}
	if c.group.used == 0 && c.group.loan == nil && len(c.group.waiting) == 0 {
		delete(b.groups, c.object)
	}
	c.group = nil
}

// addLocked adds n bytes by the rule, which may be negative, to a client with a group.
func (b *Budget) addLocked(c *client, n int64) {
	b.used += n
	c.group.used += n
	c.used += n
	b.orderLocked(c)
}

// orderLocked moves a client, its group and the loan of the group to their places in the heaps after a change of their needs.
func (b *Budget) orderLocked(c *client) {
	if c.ready != nil {
		heap.Fix(&c.group.waiting, c.at)
	}
	if len(c.group.waiting) > 0 {
		heap.Fix(&b.waiting, c.group.at)
	}
	if c.group.loan != nil {
		heap.Fix(&b.loans, c.group.loan.at)
	}
}

// beginWaitLocked makes a lease wait for more bytes. rest is at least more.
func (b *Budget) beginWaitLocked(l *Lease, more, rest int64) {
	c := l.of
	b.waits++
	c.waiter, c.more, c.rest, c.since, c.ready = l, more, rest, b.waits, make(chan struct{})
	heap.Push(&c.group.waiting, c)
	if len(c.group.waiting) == 1 {
		heap.Push(&b.waiting, c.group)
	}
	b.orderLocked(c)
	if rest <= b.reserve {
		c.place = c.group.oldest.PushBack(c)
	}
	b.turnLocked(c.group)
}

// endWaitLocked ends the wait of a client.
func (b *Budget) endWaitLocked(c *client) {
	if len(c.group.waiting) == 1 {
		heap.Remove(&b.waiting, c.group.at)
	}
	heap.Remove(&c.group.waiting, c.at)
	close(c.ready)
	c.ready, c.waiter = nil, nil
	b.orderLocked(c)
	if c.place != nil {
		c.group.oldest.Remove(c.place)
		c.place = nil
	}
	b.turnLocked(c.group)
}

// grantLocked converts lent bytes, and then ends the waits of clients that can get their bytes. Callers have returned bytes or lowered a need.
func (b *Budget) grantLocked() {
	b.convertLocked()
	for len(b.waiting) > 0 {
		if need, _ := b.waiting[0].need(); b.used+need > b.share {
			break
		}
		c := b.waiting[0].waiting[0]
		c.waiter.total += c.more // before the end of the wait, after which Reserve reads it without the lock
		b.addLocked(c, c.more)
		b.endWaitLocked(c)
	}
	b.grantLentLocked()
}
