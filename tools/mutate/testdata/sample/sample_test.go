package sample

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// TestObserve writes the results of all functions to a file.
func TestObserve(t *testing.T) {
	line := func(name string, results ...any) string { return name + " " + fmt.Sprintln(results...) }
	out := line("negated", negated(true), negated(false))
	out += line("small", small(2), small(3), small(4))
	out += line("sum", sum(2, 1))
	out += line("both", both(true, false), both(true, true), both(false, false))
	stops(true)
	out += line("stops", trace)
	stops(false)
	out += line("stops", trace)
	trace = nil
	inOrder()
	out += line("inOrder", trace)
	out += line("swapped", swapped())
	out += line("fails", fails(errors.New("no")))
	out += line("bigger", bigger())
	failure := errors.New("no")
	for _, text := range [][]string{nil, {"a"}} {
		trace = text
		for _, of := range [][2]error{{}, {failure}, {nil, failure}} {
			n, ok, err := withError(of[0], of[1])
			if err != nil {
				n, ok = 0, false // these are not read
			}
			out += line("withError", n, ok, err)
		}
	}
	out += line("locked", locked(new(sync.Mutex)))
	out += line("set", new(T).set())
	if err := os.WriteFile(os.Getenv("OBSERVED"), []byte(out), 0o666); err != nil {
		t.Fatal(err)
	}
}
