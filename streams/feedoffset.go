package streams

import (
	"encoding/base32"
	"strings"

	"github.com/dohost/dohost"
)

// place is a decoded offset of a feed: the changes until At are sent. While rows are listed, they are sent only for the rows until the
// cursor After of the source Source, and all rows of the sources before it.
type place struct {
	At     dohost.Position
	Listed bool // all rows are sent
	Source int
	After  dohost.Cursor // empty: before the first row
}

// cursorText keeps the order of cursors.
var cursorText = base32.HexEncoding.WithPadding(base32.NoPadding)

// String returns the offset. The offsets that a client gets one after the other are in the order of their texts: the names of later logs
// sort after earlier ones.
func (p place) String() string {
	s := "0_" // before all logs
	if p.At.Log != "" {
		s = "1" + p.At.Log + "_"
	}
	s += ordered(p.At.Offset) + "_"
	if p.Listed {
		return s + "z" // after all numbers of sources
	}
	return s + ordered(uint64(p.Source)) + "_" + cursorText.EncodeToString([]byte(p.After))
}

// parsePlace decodes an offset. It accepts only texts that String returns.
func parsePlace(s string) (p place, ok bool) {
	parts := strings.Split(s, "_")
	if len(parts) < 3 || len(parts) > 4 {
		return p, false
	}
	p.At.Log = strings.TrimPrefix(parts[0], "1")
	if parts[0] == "0" {
		p.At.Log = ""
	}
	p.At.Offset, _ = cutOrdered(parts[1])
	if len(parts) == 3 {
		p.Listed = true
		return p, p.String() == s
	}
	source, _ := cutOrdered(parts[2])
	after, err := cursorText.DecodeString(parts[3])
	p.Source, p.After = int(min(source, maxSources)), dohost.Cursor(after)
	return p, err == nil && p.String() == s
}
