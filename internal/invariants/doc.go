// Package invariants holds checks that are too dear, or too blunt, for
// production. Builds with the tag invariants, and all builds with -race, make
// them; in every other build each function is empty and costs nothing.
//
// A check panics: it reports a mistake in this repository, never one of a user.
package invariants

// A locker is a *sync.Mutex or a *sync.RWMutex.
type locker interface {
	TryLock() bool
	Unlock()
}
