// Package sample has a place for each operator, each in a function of its own.
package sample

import (
	"errors"
	"fmt"
	"log"
	"sync"
)

var trace []string

func say(s string) { trace = append(trace, s) }

// Size is a type of constants.
type Size int

const limit Size = 3 // no mutation

func negated(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func small(n int) bool {
	return n <
		int(limit)
}

func sum(a, b Size) Size { return a + b }

func both(a, b bool) bool {
	return a &&
		b
}

func stops(done bool) {
	for range 2 {
		say("a")
		if done {
			break
		}
	}
}

func inOrder() {
	say("first") // with a comment
	say("second")
}

func pair(a, b string) string { return a + b }

func swapped() string { return pair("a", trace[0]) }

func fails(err error) error { return err }

func bigger() Size { return limit }

func withError(err, other error) (Size, bool, error) {
	if err != nil {
		return 0, true, err
	}
	switch {
	case trace == nil:
		return limit, false, errors.New("no trace")
	case other != nil:
		return 0, true, other
	}
	return 2, true, nil
}

func locked(mu *sync.Mutex) bool {
	mu.Lock()
	defer mu.Unlock()
	return mu.TryLock()
}

// T has a method without mutations.
type T struct{ n int }

func (t *T) String() string { return fmt.Sprint(t.n + 1) }

func (t *T) set() int {
	log.Printf("%d", t.n+1)
	if t.n < 0 {
		panic(errors.New("negative"))
	}
	list := [...]int{limit: 1}
	return list[limit]
}
