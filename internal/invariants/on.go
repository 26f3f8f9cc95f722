//go:build invariants || race

package invariants

// Enabled reports whether this build makes the checks. It is a constant, so code
// under "if invariants.Enabled" is not even in other builds.
const Enabled = true

// Held panics if no goroutine holds mu. It cannot determine which one does: a lock held by
// another goroutine satisfies it, and -race finds that case.
func Held(mu locker) {
	if mu.TryLock() {
		mu.Unlock()
		panic("invariants: the lock is not held")
	}
}

// Mangle overwrites memory that no code may read any more, so that a goroutine that
// still reads it fails immediately.
func Mangle(b []byte) {
	for i := range b {
		b[i] = 0xCC
	}
}
