package frame

import (
	"fmt"
	"strconv"
	"strings"
)

// Name is the name of an object in an archive. An object is a run of records, or a part of a base. Names sort by the last
// record that the object includes: all objects that sort before a base are not needed to restore a state after it.
//
//	0000000000000400.base.00000           part 0 of the base of record 400
//	0000000000000400.base.00001.end       the last part of it
//	0000000000000450.records.0000000000000401   records 401 to 450
type Name struct {
	Last uint64
	// First is the first record; 0 for a part of a base.
	First uint64
	Part  uint32
	End   bool // the last part of a base
}

// Base reports whether the object is a part of a base.
func (n Name) Base() bool { return n.First == 0 }

// String returns the name.
func (n Name) String() string {
	switch {
	case !n.Base():
		return fmt.Sprintf("%016d.records.%016d", n.Last, n.First)
	case n.End:
		return fmt.Sprintf("%016d.base.%05d.end", n.Last, n.Part)
	}
	return fmt.Sprintf("%016d.base.%05d", n.Last, n.Part)
}

// ParseName reads a name. It returns false for a name that no object has.
func ParseName(s string) (Name, bool) {
	var n Name
	fields := strings.Split(s, ".")
	if len(fields) < 3 {
		return n, false
	}
	last, err := strconv.ParseUint(fields[0], 10, 64)
	number, err2 := strconv.ParseUint(fields[2], 10, 64)
	if err != nil || err2 != nil {
		return n, false
	}
	n.Last = last
	if fields[1] == "records" {
		n.First = number
	} else {
		n.Part, n.End = uint32(number), len(fields) == 4
	}
	return n, n.String() == s && n.First <= n.Last
}
