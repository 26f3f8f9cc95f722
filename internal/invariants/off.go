//go:build !invariants && !race

package invariants

// Enabled reports whether this build makes the checks. It is a constant, so code
// under "if invariants.Enabled" is not even in other builds.
const Enabled = false

// Held panics if no goroutine holds mu, in builds that make the checks.
func Held(locker) {}

// Mangle overwrites b in builds that make the checks.
func Mangle([]byte) {}
