package objectstore

// Bounds selects rows of one space. An empty bound is no bound. Rows must meet
// all of them; if none can, Scan does no I/O. Reverse does not swap Start and
// End. Start together with After, and a negative Limit, are errors.
type Bounds struct {
	Space   Space
	Start   []byte // first key, inclusive
	After   []byte // keys after this one
	End     []byte // keys before this one
	Prefix  []byte // keys that begin so
	Reverse bool   // from the last to the first
	Limit   int    // at most so many rows; zero means all
}

// Iterator walks over rows. It is not for concurrent use.
type Iterator struct{}

// Next moves to the next row, the first time to the first. It returns false at
// the end and on an error.
func (it *Iterator) Next() bool { return false }

// Key returns the row's key, valid until the next call of Next or Close.
func (it *Iterator) Key() []byte { return nil }

// Value returns the row's value, valid until the next call of Next or Close.
func (it *Iterator) Value() []byte { return nil }

// Err returns the error that ended the iteration, if one did: ErrFenced when the
// store was closed meanwhile.
func (it *Iterator) Err() error { return nil }

// Close ends the iteration and returns Err. Closing twice is allowed.
func (it *Iterator) Close() error { return nil }
