package objectstore

import "fmt"

// Epoch numbers a life of an object. Host is the generation of the host, written
// and synced once per Open; Life is a counter in memory. A life costs no write.
// Epochs are comparable; the zero Epoch owns nothing.
type Epoch struct {
	Host uint64
	Life uint64
}

// String returns the two numbers joined by a point: "3.17".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Host, e.Life) }
