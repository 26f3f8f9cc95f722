package objectstore

import "strconv"

// Epoch numbers an incarnation of an object. Fork is the fork of the store's [Identity];
// Host is the generation of the host, written and synced once per Open; Incarnation is a
// counter in memory. An incarnation costs no write. Epochs are comparable, and no two
// incarnations have the same one, also if a store and its restored backup both run.
// The zero Epoch owns nothing.
type Epoch struct {
	Fork        uint32
	Host        uint64
	Incarnation uint64
}

// String returns the three numbers joined by points, the fork in hexadecimal:
// "5f0c3a91.3.17".
func (e Epoch) String() string {
	var b [8 + 1 + 20 + 1 + 20]byte
	return string(strconv.AppendUint(e.appendHost(b[:0]), e.Incarnation, 10))
}

// HostPrefix returns the common prefix of the strings of the host's epochs: "5f0c3a91.3.". No string of another
// host's epoch begins with it.
func (e Epoch) HostPrefix() string {
	var b [8 + 1 + 20 + 1]byte
	return string(e.appendHost(b[:0]))
}

func (e Epoch) appendHost(b []byte) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[e.Fork>>shift&0xf])
	}
	b = strconv.AppendUint(append(b, '.'), e.Host, 10)
	return append(b, '.')
}
