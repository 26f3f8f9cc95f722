package objectstore

import "time"

// Stats counts the work of a store since Open.
type Stats struct {
	Records   int64 // records of objects made durable
	Batches   int64 // batches with writes, in these records
	Bytes     int64 // bytes of these records, without their frames
	Undurable int64 // present bytes against MaxHostBytes: of open batches, undurable commits and unreleased outputs
	Damaged   int64 // blocks and records that could not be read, each counted once, 1,024 at most
	Ship      ShipStats
	Shared    SharedStats
}

// Stats counts the work of the store since Open. The counters are not read at one moment.
func (s *Store) Stats() Stats {
	return Stats{
		Records:   s.counts.records.Load(),
		Batches:   s.counts.batches.Load(),
		Bytes:     s.counts.bytes.Load(),
		Undurable: s.budget.held.Load(),
		Damaged:   s.damages.count(),
		Ship:      s.ship.stats(),
		Shared:    s.sharedStats(),
	}
}

// ShipStats describes the shipping of records.
type ShipStats struct {
	On       bool          // there is an archive
	Record   uint64        // the newest durable record
	Shipped  uint64        // the newest record in the archive
	Records  int64         // durable records that are not in the archive
	Bytes    int64         // of their frames in the store, about
	Lag      time.Duration // since the oldest of them became durable, about; zero if there is none
	Uploaded int64         // bytes put into the archive
	Failures int64         // failed attempts, and a newest frame that Open could not read
	Err      error         // of the last attempt of records or, if that succeeded, of a base; nil if both succeeded
	// NeedsBase reports that the newest shipped records cannot be restored before a base is complete.
	NeedsBase bool
}

func (sh *shipper) stats() ShipStats {
	if sh == nil {
		return ShipStats{}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	st := ShipStats{
		On: true, Record: sh.made, Shipped: sh.shipped, Records: int64(sh.made - min(sh.shipped, sh.made)),
		Bytes: sh.bytes - sh.sent, Uploaded: sh.uploaded, Failures: sh.failures, Err: sh.err,
		NeedsBase: sh.needsBase,
	}
	if st.Err == nil {
		st.Err = sh.baseErr
	}
	if !sh.oldest.IsZero() {
		st.Lag = max(0, time.Since(sh.oldest))
	}
	return st
}

// SharedStats describes the bases of a shared log.
type SharedStats struct {
	On       bool   // there is a shared log
	Base     uint64 // the record of the newest base; 0 if there is none
	Bytes    int64  // of the records since that base
	Written  int64  // bases that this host has written
	Failures int64  // failed attempts of a base or of a purge
	Err      error  // of the last attempt; nil if that succeeded
}

// sharedStats describes the shared log; the zero SharedStats if there is none.
func (s *Store) sharedStats() SharedStats {
	l, ok := s.log.(*leaseLog)
	if !ok {
		return SharedStats{}
	}
	l.bases.mu.Lock()
	defer l.bases.mu.Unlock()
	st := l.bases.stats
	st.Bytes = l.bases.since(l.bases.have.Load())
	return st
}
