package objectstore

import (
	"context"
	"errors"
	"io"
)

// ErrExists says that an object to be imported already has rows.
var ErrExists = errors.New("objectstore: object exists")

// Import makes the object id out of a stream that Export wrote, whatever the
// object was called there. The object must be absent (ErrExists), and cold until
// Import returns. A large object takes several records; until the last one is
// durable, and for ever if the host dies before that, Importing is true of it. A
// new Import removes such remains first.
func (s *Store) Import(ctx context.Context, id ID, r io.Reader) error { return nil }
