package cluster

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// acquire raises the bytes of a client of an object to n.
func (b *readBudget) acquire(o *objectReads, c *clientReads, n int64, cut <-chan struct{}) bool {
	ready := b.take(o, c, n)
	return ready == nil || b.wait(o, c, ready, cut)
}

// flood sends frames of a size until the connection ends.
func (e *edgeTest) flood(c *websocket.Conn, size int) {
	go func() {
		for c.Write(e.Context(), websocket.MessageBinary, make([]byte, size)) == nil {
		}
	}()
}

// TestReadBudgetIsLeftToClientsOfOtherObjects has many clients of an object that acknowledges nothing, and a client of another object.
func TestReadBudgetIsLeftToClientsOfOtherObjects(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		const limit = 1 << 20
		t.edge.edge.reads.limit = limit
		t.owner.silent = true
		for range 20 {
			t.flood(t.dial(), 50<<10)
		}
		time.Sleep(5 * time.Second)
		c := t.dialPath("/other")
		c.SetReadLimit(limit)
		text := strings.Repeat("x", 100<<10)
		begun := time.Now()
		for range 10 {
			t.write(c, text)
			t.want(c, text)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the frames of the other object took %v", took)
		}
	})
}

// TestReadBudgetIsLeftToClientsOfTheObject has a client that sends much to an object that acknowledges nothing, and another client.
func TestReadBudgetIsLeftToClientsOfTheObject(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const limit = 600 << 10
		t.edge.edge.reads.limit = limit
		got := map[uint64]int{}
		t.owner.silent = true
		t.owner.poison = func(in *dohost.LinkInput) bool {
			got[in.Socket] += len(in.Frame.Data)
			return false
		}
		t.flood(t.dial(), 10<<10)
		time.Sleep(time.Second)
		c := t.dial()
		begun := time.Now()
		t.write(c, strings.Repeat("x", 40<<10))
		time.Sleep(time.Second)
		t.owner.mu.Lock()
		defer t.owner.mu.Unlock()
		if took := time.Since(begun); got[2] != 40<<10 || took > 2*time.Second {
			t.Errorf("after %v the object has %v bytes of its clients", took, got)
		}
	})
}

// TestReadBudgetWaitEndsWhenItsBytesAreFree draws clients that take and return bytes: no client waits while there are bytes for it, and at the
// end nothing is counted.
func TestReadBudgetWaitEndsWhenItsBytesAreFree(t *testing.T) {
	waits := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			b := &readBudget{limit: 1000}
			objects := make([]objectReads, 1+r.IntN(4))
			clients := make([]clientReads, 12)
			var mu sync.Mutex // guards r
			draw := func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return r.Int64N(n)
			}
			var all sync.WaitGroup
			for i := range clients {
				o, c := &objects[i%len(objects)], &clients[i]
				all.Go(func() {
					held := int64(0)
					for range 30 {
						cut := make(chan struct{})
						late := time.AfterFunc(time.Duration(1+draw(5000))*time.Millisecond, func() { close(cut) })
						if n := draw(200); b.acquire(o, c, held+n, cut) {
							held += n
						}
						late.Stop()
						time.Sleep(time.Duration(draw(500)) * time.Millisecond)
						held = draw(held + 1)
						b.lower(o, c, held)
					}
					b.lower(o, c, 0)
				})
			}
			for range 500 {
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				waits += b.check(t, objects)
			}
			all.Wait()
			if waiting := b.check(t, objects); b.used != 0 || waiting != 0 || len(b.waiting) != 0 {
				t.Errorf("seed %d: %d bytes are counted, %d clients wait", seed, b.used, waiting)
			}
		})
	}
	if waits == 0 {
		t.Error("no client has waited")
	}
}

// check compares the sums with the limit, and returns the number of clients that wait.
func (b *readBudget) check(t *testing.T, objects []objectReads) (waiting int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sum, queued := int64(0), 0
	for i := range objects {
		o := &objects[i]
		sum += o.used
		if len(o.waiting) > 0 {
			queued++
		}
		if b.used == o.used && 2*o.used > b.limit {
			t.Errorf("the clients of the only object have %d bytes", o.used)
		}
		for _, c := range o.waiting {
			waiting++
			if b.used+o.used+c.used+3*c.more <= b.limit {
				t.Errorf("a client waits for %d bytes in addition to %d; its object has %d, and all have %d", c.more, c.used, o.used, b.used)
			}
		}
	}
	if sum != b.used || b.used > b.limit || b.used < 0 || queued != len(b.waiting) {
		t.Errorf("%d bytes are counted, %d for the objects; %d objects of %d wait", b.used, sum, len(b.waiting), queued)
	}
	return waiting
}

// TestReadBudgetIsGivenToTheSmallestNeedFirst has clients that wait, two of them for the same number of bytes.
func TestReadBudgetIsGivenToTheSmallestNeedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &readBudget{limit: 300}
		var first, second objectReads
		var holder, large, small, later, other clientReads
		if !b.acquire(&first, &holder, 100, nil) {
			t.Fatal("there are no bytes")
		}
		order := make(chan string, 4)
		wait := func(name string, o *objectReads, c *clientReads, n int64) {
			go func() {
				if b.acquire(o, c, n, nil) {
					order <- name
				}
			}()
			synctest.Wait()
		}
		wait("large", &first, &large, 80)
		wait("small", &first, &small, 65)
		wait("later", &first, &later, 65)
		wait("other", &second, &other, 90)
		if len(order) != 0 {
			t.Fatalf("%s did not wait", <-order)
		}
		for i, want := range []string{"small", "later", "large", "other"} {
			b.lower(&first, []*clientReads{&holder, &small, &later, &large}[i], 0)
			synctest.Wait()
			if len(order) != 1 {
				t.Fatalf("%d clients get bytes, want %s alone", len(order), want)
			}
			if got := <-order; got != want {
				t.Errorf("%s gets bytes, want %s", got, want)
			}
		}
	})
}

// TestReadBudgetIsReturnedByAClientThatIsRefused has a client that sends a part of a frame.
func TestReadBudgetIsReturnedByAClientThatIsRefused(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		b := &t.edge.edge.reads
		b.limit = 100 << 10
		w, err := t.dial().Writer(t.Context(), websocket.MessageBinary)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = w.Write(make([]byte, 40<<10)) }()
		used := func() int64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.used
		}
		time.Sleep(budgetWait - time.Second)
		before := used()
		time.Sleep(2 * time.Second)
		if after := used(); before < 20<<10 || after != 0 {
			t.Errorf("%d bytes are counted, and %d after the client was refused", before, after)
		}
	})
}

// TestReadBudgetSufficesForTheLargestFrame has a frame of the largest size, and the smallest budget for it.
func TestReadBudgetSufficesForTheLargestFrame(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const size = 1 << 20
		t.edge.edge.reads.limit = 3 * (size + 1 + inputOverhead)
		c := t.dial()
		c.SetReadLimit(size)
		text := strings.Repeat("x", size)
		t.write(c, text)
		t.want(c, text)
	})
	for maxFrame, want := range map[int64]int64{1: maxReads, 4 << 20: maxReads, 100 << 20: 400 << 20} {
		if got := readLimit(maxFrame); got != want {
			t.Errorf("the limit for frames of %d bytes is %d, want %d", maxFrame, got, want)
		}
	}
}

// TestReadBudgetWaitEndsWhenInputsAreAcknowledged has a client that waits for the buffer of a frame, until it needs no more bytes than before.
func TestReadBudgetWaitEndsWhenInputsAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &edgeEntry{edge: &edge{}}
		s := newEdgeSocket(e, 1, nil, 0)
		e.edge.reads.limit = 30_000
		s.unacked = freeBytes
		if !s.setBuffer(8000) {
			t.Fatal("there are no bytes")
		}
		begun, got := time.Now(), make(chan bool)
		go func() { got <- s.setBuffer(16_000) }()
		synctest.Wait()
		e.mu.Lock()
		s.unacked, s.buffer = 0, 8000+freeBytes // another buffer would be as large
		e.releaseUnusedLocked(s)
		e.mu.Unlock()
		if !<-got || time.Since(begun) != 0 {
			t.Errorf("the client has waited for %v", time.Since(begun))
		}
	})
}
