//go:build invariants || race

package invariants

import (
	"bytes"
	"runtime"
	"strconv"
)

// Enabled says whether this build makes the checks. It is a constant, so code
// under "if invariants.Enabled" is not even in other builds.
const Enabled = true

// Held panics if nobody holds mu. It cannot tell who does: a lock held by
// somebody else satisfies it, and -race finds that case.
func Held(mu locker) {
	if mu.TryLock() {
		mu.Unlock()
		panic("invariants: the lock is not held")
	}
}

// Mangle overwrites memory that nobody may look at any more, so that whoever
// still does sees it at once.
func Mangle(b []byte) {
	for i := range b {
		b[i] = 0xCC
	}
}

// GoroutineID returns a number that no other goroutine has while this one
// lives. It exists to be compared, by code that must stay on its goroutine. In
// builds without checks all goroutines have the same one, so comparisons hold.
func GoroutineID() uint64 {
	// Go gives no such number out, except at the head of a stack trace:
	// "goroutine 18 [running]:".
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	if len(fields) < 2 {
		panic("invariants: a stack trace without a head")
	}
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic("invariants: a stack trace with another head: " + err.Error())
	}
	return id
}
