package objectstore

import "fmt"

// Epoch numbers an incarnation of an object. Fork is that of the store's [Identity];
// Host is the generation of the host, written and synced once per Open; Life is a
// counter in memory. An incarnation costs no write. Epochs are comparable, and no two
// incarnations have the same one, also if a store and its restored backup both run.
// The zero Epoch owns nothing.
type Epoch struct {
	Fork uint32
	Host uint64
	Life uint64
}

// String returns the three numbers joined by points, the fork in hexadecimal:
// "5f0c3a91.3.17".
func (e Epoch) String() string { return fmt.Sprintf("%08x.%d.%d", e.Fork, e.Host, e.Life) }
