package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/objectstore"
)

// cutOff yields its bytes, and then an error once cut is closed.
type cutOff struct {
	*bytes.Reader
	cut chan struct{}
}

func (r *cutOff) Read(p []byte) (int, error) {
	if r.Len() == 0 {
		<-r.cut
		return 0, errors.New("cut off")
	}
	return r.Reader.Read(p)
}

// TestImportCutOffLeavesAnObjectThatDoesNotRun cuts the power in the middle of an import.
func TestImportCutOffLeavesAnObjectThatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		err := do(t.Context(), h, "from", "fill", func(ctx context.Context, c *counter) error {
			var err error
			for i := range 3 {
				err = errors.Join(err, c.s.Put(ctx, kv, fmt.Append(nil, i), make([]byte, 400<<10), false))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		sn, err := h.Store().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var export bytes.Buffer
		if err := sn.Export(id("from"), &export); err != nil {
			t.Fatal(err)
		}
		sn.Close()
		half := &cutOff{bytes.NewReader(export.Bytes()[:export.Len()-100]), make(chan struct{})}
		imported := make(chan error, 1)
		go func() { imported <- h.Import(t.Context(), id("a"), half) }()
		synctest.Wait()
		cut := fs.Crash(0, 1)
		close(half.cut)
		if err := <-imported; err == nil {
			t.Error("half an import succeeded")
		}

		h = open(t, cut, Options{})
		_, err = add(t.Context(), h, "a", 1)
		if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, ErrHalfImported) || e.Outcome != OutcomeNotRun {
			t.Errorf("add to half an object: %v", err)
		}
		synctest.Wait() // the object is in use until it has gone back to rest
		if err := h.Import(t.Context(), id("a"), &export); err != nil {
			t.Errorf("importing again: %v", err)
		}
		if n, err := add(t.Context(), h, "a", 1); err != nil || n != 1 {
			t.Errorf("add = %d, %v", n, err)
		}
	})
}

// TestImportIsReadByAnObjectThatWasJustDeleted imports while the object still caches its
// last writes.
func TestImportIsReadByAnObjectThatWasJustDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		if _, err := add(t.Context(), h, "from", 7); err != nil {
			t.Fatal(err)
		}
		sn, err := h.Store().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var export bytes.Buffer
		err = sn.Export(id("from"), &export)
		sn.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		err = do(t.Context(), h, "a", "delete", func(ctx context.Context, c *counter) error { return c.s.DeleteAll(ctx) })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := h.Import(t.Context(), id("a"), &export); err != nil {
			t.Fatal(err)
		}
		if n, err := add(t.Context(), h, "a", 1); err != nil || n != 8 {
			t.Errorf("add = %d, %v; want 8", n, err)
		}
	})
}
