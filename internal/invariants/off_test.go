//go:build !invariants && !race

package invariants

import (
	"sync"
	"testing"
)

func TestChecksDoNothingWhenDisabled(t *testing.T) {
	var mu sync.Mutex
	b := []byte("still here")
	allocs := testing.AllocsPerRun(100, func() {
		Held(&mu) // not held, and no panic
		Mangle(b)
	})
	if allocs != 0 {
		t.Errorf("the checks allocate %v times in a build without them", allocs)
	}
	if string(b) != "still here" {
		t.Errorf("Mangle left %q in a build without checks", b)
	}
}
