package socket

import (
	"testing"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/runtime"
)

// TestLinkRemovesQueuesWithoutBytes has a queue with two large frames, which handlers use after the queue is empty, and a queue with a
// small frame.
func TestLinkRemovesQueuesWithoutBytes(t *testing.T) {
	l := New(testLimits).NewLink(runtime.ID{Class: "class", Name: "name"}, nil, nil)
	input := func(number uint64, size int) *linkInput {
		q := l.inputs[number]
		if q == nil {
			q = &inputQueue{}
			l.inputs[number] = q
		}
		e := &linkInput{link: l, queue: q, in: LinkInput{Socket: number, Frame: Frame{Data: make([]byte, size)}}}
		if !e.reserve() {
			t.Fatal("there are no bytes")
		}
		return e
	}
	first, second := input(1, 10_000), input(1, 10_000)
	small := input(2, budget.Free)
	for number, q := range l.inputs {
		l.removeUnusedLocked(number, q) // as when the goroutine ends
	}
	if small.lease.Load() != nil || small.queue.lease != nil || l.inputs[2] != nil {
		t.Error("a small frame counts")
	}
	for i, e := range []*linkInput{second, first} {
		if l.inputs[1] != e.queue {
			t.Errorf("the link has removed a queue with %d frames in use", 2-i)
		}
		e.release(e.lease.Swap(nil))
	}
	if n, u := len(l.inputs), testLimits.Reads.Usage(); n != 0 || u.Used != 0 {
		t.Errorf("in the end: %d queues, %+v", n, u)
	}
}
