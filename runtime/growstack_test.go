package runtime

import (
	"testing"
	"unsafe"
)

// TestGrowStackLeavesSpace calls a function with a large frame after growStack. A stack that grows is copied, so its variables get other
// addresses.
func TestGrowStackLeavesSpace(t *testing.T) {
	moved := make(chan bool)
	go func() {
		var here byte
		growStack(false, 0)
		before := uintptr(unsafe.Pointer(&here))
		largeFrame(0)
		moved <- before != uintptr(unsafe.Pointer(&here))
	}()
	if <-moved {
		t.Errorf("the stack has grown after growStack")
	}
}

//go:noinline
func largeFrame(i int) byte {
	var frame [wakeStack - 512]byte
	return frame[i]
}
