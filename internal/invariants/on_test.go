//go:build invariants || race

package invariants

import (
	"bytes"
	"sync"
	"testing"
)

func TestHeld(t *testing.T) {
	var mu sync.Mutex
	var rw sync.RWMutex
	if !panics(func() { Held(&mu) }) || !panics(func() { Held(&rw) }) {
		t.Error("nobody holds the lock, and Held is content")
	}
	if !mu.TryLock() {
		t.Fatal("Held took the lock along when it panicked")
	}
	if panics(func() { Held(&mu) }) {
		t.Error("the lock is held, and Held panics")
	}
	rw.RLock()
	if panics(func() { Held(&rw) }) {
		t.Error("the lock is held for reading, and Held panics")
	}
}

func TestMangle(t *testing.T) {
	b := []byte("still here?")
	Mangle(b)
	if want := bytes.Repeat([]byte{0xCC}, len(b)); !bytes.Equal(b, want) {
		t.Errorf("after Mangle: % x", b)
	}
	Mangle(nil)
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
