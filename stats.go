package dohost

import "github.com/dohost/dohost/objectstore"

// StoreStats counts the work of a store.
type StoreStats = objectstore.Stats

// ShipStats describes the shipping of records to an archive.
type ShipStats = objectstore.ShipStats

// SharedLogStats describes the bases of the log of [Options].Lease.
type SharedLogStats = objectstore.SharedStats

// Stats counts the work of the store since it was opened.
func (h *Host) Stats() StoreStats { return h.rt.Store().Stats() }
