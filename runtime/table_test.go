package runtime

import (
	"slices"
	"testing"
)

// TestNamesOfOneHashAreToldApart fills a shard with objects of two names that have the same
// hash, in both orders of coming and going.
func TestNamesOfOneHashAreToldApart(t *testing.T) {
	const hash = 7
	for _, firstGoes := range []bool{true, false} {
		a, b := &object{name: "a"}, &object{name: "b"}
		var s shard
		s.putLocked(hash, a)
		if o := s.getLocked(hash, "b"); o != nil {
			t.Fatalf("found %q for %q", o.name, "b")
		}
		s.putLocked(hash, b)
		if s.getLocked(hash, "a") != a || s.getLocked(hash, "b") != b || s.getLocked(hash, "c") != nil {
			t.Fatal("two objects of one hash are not told apart")
		}
		goes, stays := a, b
		if !firstGoes {
			goes, stays = b, a
		}
		s.removeLocked(hash, &object{name: goes.name}) // another of that name: it is not in the table
		if s.getLocked(hash, goes.name) != goes {
			t.Fatalf("%q was removed for another of its name", goes.name)
		}
		s.removeLocked(hash, goes)
		if s.getLocked(hash, goes.name) != nil || s.getLocked(hash, stays.name) != stays {
			t.Fatalf("after %q has gone: %v, %v", goes.name, s.getLocked(hash, goes.name), s.getLocked(hash, stays.name))
		}
		s.putLocked(hash, goes)
		all := slices.Collect(s.allLocked)
		if len(all) != 2 || !slices.Contains(all, a) || !slices.Contains(all, b) {
			t.Fatalf("%d objects, want both", len(all))
		}
	}
}
