package objectstore

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestStandbyHidesHalfImportedObjects looks at a standby while its host imports an object in several records, and afterwards.
func TestStandbyHidesHalfImportedObjects(t *testing.T) {
	stream := alarmFirst(t, 50, 50_000)
	synctest.Test(t, func(t *testing.T) {
		a := newMemArchive()
		s := shipTo(t, NewMemFS(), a)
		put(t, s, "o", "n", "1")
		time.Sleep(5 * time.Second)
		y := standbyOf(t, NewMemFS(), a)
		wantObject := func(when string, id ID, importing, exists bool) {
			t.Helper()
			time.Sleep(5 * time.Second) // until the host has shipped its records
			if err := y.runPass(t); err != nil {
				t.Fatal(err)
			}
			if got, want := y.Status().Record, s.Stats().Ship.Record; got != want {
				t.Fatalf("%s: the standby has record %d, want %d", when, got, want)
			}
			store, err := y.Store()
			if err != nil {
				t.Fatal(err)
			}
			if found, err := store.snapshot(t).Exists(id); err != nil || found != exists || store.Importing(id) != importing {
				t.Errorf("%s: exists %t, importing %t, %v", when, found, store.Importing(id), err)
			}
		}
		id, goOn, done := ID{"c", "to"}, make(chan struct{}), make(chan error)
		wantObject("before the import", id, false, false)
		rest := io.MultiReader(bytes.NewReader(stream[:len(stream)/2]), readFunc(func([]byte) (int, error) {
			<-goOn
			return 0, io.EOF
		}), bytes.NewReader(stream[len(stream)/2:]))
		go func() { done <- s.Import(t.Context(), id, rest) }()
		wantObject("during the import", id, true, false)
		close(goOn)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantObject("after the import", id, false, true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
