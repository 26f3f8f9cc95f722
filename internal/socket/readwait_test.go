package socket

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/runtime"
)

// TestLinkFrameKeepsItsPlaceWhileItWaits has a frame that waits for longer than the time limit of other clients. It gets its bytes before a smaller frame
// that began to wait later, and nothing was refused.
func TestLinkFrameKeepsItsPlaceWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := runtime.ID{Class: "class", Name: "name"}
		reads := budget.New(4 << 20)
		limits := testLimits
		limits.Reads = reads
		l := New(limits).NewLink(id, nil, nil)
		holder, lent, later := reads.Lease(budget.Object(id)), reads.Lease(budget.Object(id)), reads.Lease(budget.Object(id))
		if holder.Take(1<<20, 1<<20) != nil || lent.Take(900<<10, 900<<10) != nil {
			t.Fatal("there are no bytes")
		}
		reserved := make(chan bool, 1)
		e := &linkInput{link: l, queue: &inputQueue{}, in: LinkInput{Socket: 1, Frame: Frame{Data: make([]byte, 950<<10)}}}
		go func() { reserved <- e.reserve() }()
		time.Sleep(budget.Wait / 2)
		ready := later.Take(700<<10, 700<<10)
		time.Sleep(budget.Wait)
		synctest.Wait()
		if len(reserved) != 0 || ready == nil {
			t.Fatal("a frame does not wait")
		}
		lent.Release()
		synctest.Wait()
		if len(reserved) != 1 || reads.Usage().Refused != 0 {
			t.Fatalf("%d frames have their bytes, %+v", len(reserved), reads.Usage())
		}
		e.lease.Load().Release()
		<-ready
	})
}

// TestConnThatIsAbortedDoesNotWait asks for the end before and after it.
func TestConnThatIsAbortedDoesNotWait(t *testing.T) {
	for _, early := range []bool{true, false} {
		c := New(testLimits).conn(runtime.ID{Class: "class", Name: "name"}, nil, &Options{})
		if early {
			select {
			case <-c.untilOver():
				t.Error("it is over")
			default:
			}
		}
		c.abort()
		c.abort()
		select {
		case <-c.untilOver():
		default:
			t.Errorf("asked early: %t: it is not over", early)
		}
	}
}
