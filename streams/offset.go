package streams

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dohost/dohost"
)

// The offsets that the protocol reserves.
const (
	offsetStart = "-1"
	offsetNow   = "now"
)

// history names the offsets of a stream from some chunk on: since its creation, or since the first append of an incarnation. An offset of
// another history is a position in other data. Later histories of a stream's name sort after earlier ones, since the host's generation
// grows with each Open, and the number of an incarnation with each one.
type history struct {
	Host, Incarnation uint64 // of the epoch that began the history
	Serial            uint64 // counts the histories that the incarnation has begun
	Fork              uint32 // of the epoch
}

// historyOf returns a history that an incarnation begins. It sorts after last: an imported stream may come from a store with a
// higher generation.
func historyOf(e dohost.Epoch, serial uint64, last history) history {
	h := history{e.Host, e.Incarnation, serial, e.Fork}
	if cmp.Or(cmp.Compare(h.Host, last.Host), cmp.Compare(h.Incarnation, last.Incarnation), cmp.Compare(h.Serial, last.Serial)) <= 0 {
		h.Host = last.Host + 1
	}
	return h
}

// position is a decoded offset: after the chunk N of a history.
type position struct {
	History history
	N       uint64
}

// String returns the offset. The order of the texts is the order of the positions.
func (p position) String() string {
	h := p.History
	return ordered(h.Host) + ordered(h.Incarnation) + ordered(h.Serial) + fmt.Sprintf("%08x", h.Fork) + "_" + ordered(p.N)
}

// ordered returns the hexadecimal digits of n after their number, as one digit to the base 17. So the order of the texts is that of the
// numbers, and none begins another.
func ordered(n uint64) string {
	digits := strconv.FormatUint(n, 16)
	return strconv.FormatInt(int64(len(digits)), 17) + digits
}

var errOffset = errors.New("not an offset of this server")

// parseOffset decodes an offset. It accepts only texts that String returns.
func parseOffset(s string) (position, error) {
	var p position
	name, number, ok := strings.Cut(s, "_")
	if !ok {
		return p, errOffset
	}
	host, name := cutOrdered(name)
	incarnation, name := cutOrdered(name)
	serial, fork := cutOrdered(name)
	n, rest := cutOrdered(number)
	f, err := strconv.ParseUint(fork, 16, 32)
	p = position{history{host, incarnation, serial, uint32(f)}, n}
	if err != nil || rest != "" || p.String() != s {
		return position{}, errOffset
	}
	return p, nil
}

// cutOrdered returns the number at the beginning of s. For another text it returns any number: parseOffset compares the result with s.
func cutOrdered(s string) (n uint64, rest string) {
	if s == "" {
		return 0, ""
	}
	length, err := strconv.ParseInt(s[:1], 17, 0)
	if err != nil || int(length) > len(s)-1 {
		return 0, ""
	}
	n, _ = strconv.ParseUint(s[1:1+length], 16, 64) // 0 for another text
	return n, s[1+length:]
}
