package runtime

// wakeStack is the stack, in bytes, that a constructor needs which reads rows: the engine's iterators take half of it.
const wakeStack = 12 << 10

// growStack gives the calling goroutine wakeStack bytes of stack. A stack that is too small is copied to one of twice the size, and the
// time of that depends on the number of its frames. Goroutines begin with 2 KiB, or with the average of the others, so the stack of a
// constructor would be copied once or twice with 25 to 50 frames. Here it has a few frames.
// The function reserves its frame when it begins, and would clear the array only where the array is declared: use is false.
//
//go:noinline
func growStack(use bool, i int) byte {
	if use {
		var frame [wakeStack]byte
		return frame[i]
	}
	return 0
}
