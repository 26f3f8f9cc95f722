package objectstore

import (
	"bytes"
	"fmt"
	"testing"
)

// TestWriteSetOverwritesInPlace overwrites rows with values of the same length. Only a set that keeps much more memory than its rows
// need copies them.
func TestWriteSetOverwritesInPlace(t *testing.T) {
	var w writeSet
	for i := range 100 {
		w.set(fmt.Append(nil, "row", i), []byte("value"), false, 0)
	}
	key, value := []byte("row7"), []byte("other")
	if n := testing.AllocsPerRun(100, func() { w.set(key, value, false, 0) }); n > 0 {
		t.Errorf("a write allocates %v times", n)
	}
}

// TestWriteSetMemoryIsBounded overwrites a row in many savepoints. Each of them keeps the value before it.
func TestWriteSetMemoryIsBounded(t *testing.T) {
	var w writeSet
	for since := range uint32(5000) {
		w.set([]byte("row"), bytes.Repeat([]byte{byte(since)}, 1000), false, since)
		if most := 2*w.bytes + 3*maxArena; w.capacity > most {
			t.Fatalf("after %d writes the set keeps %d bytes, want at most %d", since, w.capacity, most)
		}
	}
	if at := w.find([]byte("row")); !bytes.Equal(w.rows[at].value, bytes.Repeat([]byte{4999 % 256}, 1000)) {
		t.Error("the row has another value than the last one")
	}
}
