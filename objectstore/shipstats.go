package objectstore

import "time"

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
