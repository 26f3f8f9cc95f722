package objectstore

import (
	"context"
	"fmt"
	"sync"
)

// Snapshot is the durable state at one moment between two records. It never contains writes that could still be lost.
// Its methods may be called from any goroutine, but not after Close.
type Snapshot struct {
	store *Store
	at    engineSnapshot // not touched outside engineUse
}

// openSnapshots lists the snapshots that have to be closed before Pebble is.
type openSnapshots struct {
	mu   sync.Mutex
	open map[*Snapshot]struct{}
}

// Snapshot waits until the record in flight is durable and freezes the durable state. The caller closes the snapshot.
// Errors: the error of ctx, ErrFenced.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	return s.freeze()
}

// freeze makes a snapshot while no record is in flight.
func (s *Store) freeze() (*Snapshot, error) {
	if !s.engine.acquire() {
		return nil, s.refusal()
	}
	defer s.engine.release()
	sn := &Snapshot{store: s, at: pebbleDB(s).NewSnapshot()}
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	if s.snapshots.open == nil {
		s.snapshots.open = make(map[*Snapshot]struct{})
	}
	s.snapshots.open[sn] = struct{}{}
	return sn, nil
}

// acquire waits until no record is in flight and prevents new ones until release.
func (s *Store) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // select would choose at random
		return err
	}
	select {
	case s.recordLock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.refusal(); err != nil {
		s.release()
		return err
	}
	return nil
}

func (s *Store) release() { <-s.recordLock }

// Close releases the snapshot. Closing twice is allowed.
func (sn *Snapshot) Close() {
	s := sn.store
	if !s.engine.acquire() {
		return // the store closes it
	}
	defer s.engine.release()
	s.snapshots.mu.Lock()
	_, open := s.snapshots.open[sn]
	delete(s.snapshots.open, sn)
	s.snapshots.mu.Unlock()
	if open {
		// Closing a snapshot twice is its only error.
		_ = sn.at.Close()
	}
}

// closeAll closes all open snapshots. engineUse is closed by now.
func (o *openSnapshots) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for sn := range o.open {
		_ = sn.at.Close()
	}
	clear(o.open)
}

// get reads a key. Once the snapshot is closed it returns ErrFenced.
func (sn *Snapshot) get(key []byte) ([]byte, bool, error) {
	if !sn.store.engine.acquire() {
		return nil, false, sn.store.refusal()
	}
	defer sn.store.engine.release()
	if err := sn.gone(); err != nil {
		return nil, false, err
	}
	return sn.store.appendGet(nil, sn.at, key)
}

// gone returns an error once the snapshot or the store is closed.
func (sn *Snapshot) gone() error {
	if err := sn.store.refusal(); err != nil {
		return err
	}
	sn.store.snapshots.mu.Lock()
	defer sn.store.snapshots.mu.Unlock()
	if _, ok := sn.store.snapshots.open[sn]; !ok {
		return fmt.Errorf("%w: snapshot closed", ErrFenced)
	}
	return nil
}
