//go:build invariants || race

package invariants

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
