package objectstore

import (
	"cmp"
	"fmt"
)

// Limits of rows and batches, in bytes.
const (
	MaxKey        = 2048
	MaxValue      = 2 << 20
	MaxBatchBytes = 16 << 20
	// MaxOutputBytes bounds the outputs of a batch, with an overhead for each: one event must not take the whole of
	// Options.MaxHostBytes.
	MaxOutputBytes = 32 << 20
)

// LimitError reports a size above its limit, or an empty key, name or list where that is not allowed.
type LimitError struct {
	Subject string // a noun, such as "key", "value" or "batch"
	Size    int
	Limit   int
	Unit    string // of Size and Limit; empty means bytes
}

// Error implements error.
func (e *LimitError) Error() string {
	if e == nil {
		return "dohost: nil *LimitError"
	}
	if e.Size == 0 {
		return fmt.Sprintf("dohost: empty %s", e.Subject)
	}
	return fmt.Sprintf("dohost: %s has %d %s, the limit is %d", e.Subject, e.Size, cmp.Or(e.Unit, "bytes"), e.Limit)
}
