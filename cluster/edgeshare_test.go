package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/budget"
)

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
		t.edge.edge.reads = budget.New(limit)
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
		const limit = 800 << 10
		t.edge.edge.reads = budget.New(limit)
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

// TestReadBudgetIsReturnedByAClientThatIsRefused has a client that sends a part of a frame. The log names its object.
func TestReadBudgetIsReturnedByAClientThatIsRefused(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		b := budget.New(140 << 10)
		t.edge.edge.reads = b
		var log strings.Builder
		t.edge.log = slog.New(slog.NewTextHandler(&log, nil))
		w, err := t.dial().Writer(t.Context(), websocket.MessageBinary)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = w.Write(make([]byte, 40<<10)) }()
		time.Sleep(budget.Wait - time.Second)
		before := b.Usage().Used
		time.Sleep(2 * time.Second)
		if after := b.Usage().Used; before < 20<<10 || after != 0 {
			t.Errorf("%d bytes are counted, and %d after the client was refused", before, after)
		}
		if got := log.String(); !strings.Contains(got, "the read budget has refused a client") || !strings.Contains(got, "object="+edgeObject.String()+" ") {
			t.Errorf("the log has %q", got)
		}
	})
}

// TestReadBudgetSufficesForTheLargestFrame has a frame of the largest size, and the smallest budget for it.
func TestReadBudgetSufficesForTheLargestFrame(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const size = 1 << 20
		t.edge.edge.reads = budget.New(4 * largestBuffer(size))
		c := t.dial()
		c.SetReadLimit(size)
		text := strings.Repeat("x", size)
		t.write(c, text)
		t.want(c, text)
	})
	for maxFrame, want := range map[int64]int64{1: maxReads, 4 << 20: maxReads, 100 << 20: 400<<20 + 4*(1+inputOverhead)} {
		if got := readLimit(maxFrame); got != want {
			t.Errorf("the limit for frames of %d bytes is %d, want %d", maxFrame, got, want)
		}
	}
}

// fill takes all bytes of a budget that are not of its reserve, except 2, for clients of many objects.
func fill(t *testing.T, b *budget.Budget) {
	t.Helper()
	u := b.Usage()
	for free := u.Limit - u.Limit/4 - u.Used; free >= 3; free -= free / 3 {
		if b.Lease(budget.Object{}).Take(budget.Free+free/3, 0) != nil {
			t.Fatal("there are no bytes")
		}
	}
}

// TestReadBudgetLendsTheLargestFrame has the smallest budget for a frame, after clients of other objects have taken the bytes that are not of the reserve.
// The client has an input that is not acknowledged, so that it waits for the first buffer of the frame, and may need all bytes of the reserve.
func TestReadBudgetLendsTheLargestFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxFrame = 100 << 20
		b := newReads(maxFrame)
		e := &edgeEntry{edge: &edge{reads: b}}
		s := newEdgeSocket(e, 1, nil, 0)
		s.unacked = 2 * budget.Free
		if !s.setBuffer(0, 0) {
			t.Fatal("there are no bytes")
		}
		fill(t, b)
		begun := time.Now()
		if !s.setBuffer(firstRead+inputOverhead, int(largestBuffer(maxFrame))) || time.Since(begun) != 0 {
			t.Errorf("the client has waited for %v", time.Since(begun))
		}
		if u := b.Usage(); u.Limit-u.Used > 2 {
			t.Errorf("%+v, want all used", u)
		}
	})
}

// TestReadBudgetLendsFramesOfASocketInTurn has a client that sends one large frame after the other to an object that acknowledges nothing, after clients
// of other objects have taken the bytes that are not of the reserve. The bytes of the frames are of the reserve, up to its end.
func TestReadBudgetLendsFramesOfASocketInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100_000
		b := budget.New(4 * (3*size + 3*inputOverhead - budget.Free))
		e := &edgeEntry{edge: &edge{reads: b}}
		s := newEdgeSocket(e, 1, nil, 0)
		fill(t, b)
		begun := time.Now()
		for i := range 4 {
			if got := s.setBuffer(size/2, size+inputOverhead); got != (i < 3) {
				t.Fatalf("frame %d has its bytes: %t", i, got)
			}
			if i < 3 && !s.setBuffer(size+inputOverhead, size+inputOverhead) {
				t.Fatalf("frame %d waits for its rest", i)
			}
			if i < 3 {
				e.add(s, dohost.Frame{Data: make([]byte, size)})
			}
		}
		if took := time.Since(begun); took != budget.Wait {
			t.Errorf("the fourth frame alone waits, and all took %v", took)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		s.buffer, s.largest = 0, 0
		e.acknowledgeLocked(s, 3)
		if u := b.Usage(); u.Used > u.Limit-u.Limit/4 {
			t.Errorf("after the acknowledgments %+v", u)
		}
	})
}

// TestReadBudgetWaitEndsWhenInputsAreAcknowledged has a client that waits for the buffer of a frame, until it needs no more bytes than before.
func TestReadBudgetWaitEndsWhenInputsAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &edgeEntry{edge: &edge{reads: budget.New(40_000)}}
		s := newEdgeSocket(e, 1, nil, 0)
		s.unacked = budget.Free
		if !s.setBuffer(8000, 100_000) {
			t.Fatal("there are no bytes")
		}
		begun, got := time.Now(), make(chan bool)
		go func() { got <- s.setBuffer(16_000, 100_000) }()
		synctest.Wait()
		e.mu.Lock()
		s.unacked, s.buffer = 0, 8000+budget.Free // another buffer would be as large
		e.releaseUnusedLocked(s)
		e.mu.Unlock()
		if !<-got || time.Since(begun) != 0 {
			t.Errorf("the client has waited for %v", time.Since(begun))
		}
	})
}
