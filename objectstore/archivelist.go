package objectstore

import (
	"cmp"
	"slices"

	"github.com/dohost/dohost/internal/frame"
)

// archiveList is the content of an archive, by the names of its objects.
type archiveList struct {
	bases   []archivedBase    // complete ones, in the order of their numbers
	records []archivedRecords // in the order of their last records
}

// archivedBase is a base with all of its parts.
type archivedBase struct {
	number uint64
	parts  []frame.Name
	bytes  int64
}

// archivedRecords is an object with records.
type archivedRecords struct {
	frame.Name
	size int64
}

// parseObjects leaves out bases that were never completed, and objects with other names.
func parseObjects(objects []ArchiveObject) (list archiveList) {
	bases := map[uint64]*archivedBase{}
	for _, o := range objects {
		n, ok := frame.ParseName(o.Name)
		switch {
		case !ok:
		case n.Base():
			b := bases[n.Last]
			if b == nil {
				b = &archivedBase{number: n.Last}
				bases[n.Last] = b
			}
			b.parts = append(b.parts, n)
			b.bytes += o.Size
		default:
			list.records = append(list.records, archivedRecords{n, o.Size})
		}
	}
	for _, b := range bases {
		slices.SortFunc(b.parts, func(x, y frame.Name) int { return cmp.Compare(x.Part, y.Part) })
		if last := b.parts[len(b.parts)-1]; last.End && int(last.Part) == len(b.parts)-1 {
			list.bases = append(list.bases, *b)
		}
	}
	slices.SortFunc(list.bases, func(x, y archivedBase) int { return cmp.Compare(x.number, y.number) })
	slices.SortFunc(list.records, func(x, y archivedRecords) int { return cmp.Compare(x.Last, y.Last) })
	return list
}
