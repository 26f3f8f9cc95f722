//go:build invariants || race

package objectstore

// mangle makes whoever keeps a slice beyond its life read nonsense.
const mangle = true

func scribble(b []byte) {
	for i := range b {
		b[i] = 0xaa
	}
}
