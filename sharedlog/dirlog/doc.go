// Package dirlog is a shared log in a directory of a file system that several machines, or several processes of one machine, mount.
// It needs no server. Each record is a file, synced before it gets its name.
//
// # Fence
//
// The log is a sequence of slots, numbered from 1. A slot is a file that never changes, and holds a record, the beginning of an
// ownership, or the name of a base. A slot is written to a temporary file, synced, and linked to its name, which fails if the name
// exists. So each slot has one writer, even if clocks are wrong. An owner fills only the slot after the last one that it knows. A
// host that acquires the log fills that slot itself, and the append of the former owner fails for good.
//
// # Bases
//
// The content of a base is a file with a name that has the slot that publishes it. The owner syncs the file and gives it its name before it
// fills that slot, as the next slot after the last record. So a base is published under the same fence as a record, and a file without its
// slot is no base. A purge deletes the slots before the base's record, and keeps the beginnings of ownerships for ever, 55 bytes each: a
// former owner does not know the slots after the beginning of a later ownership, so it cannot fill a slot that was purged.
//
// # Lease
//
// The owner replaces a file each second. A host that waits for the log acquires it when this file has not changed for three seconds by
// the waiting host's clock, or when the owner has released the log. The owner calls its lease invalid half a second before three
// seconds have passed since the beginning of its last successful replacement, by its own monotonic clock. So two leases are valid at
// one time only if clocks run at rates that differ by a sixth, or if the machine of the owner is suspended and its clock stands still.
// Even then the log has one history, and a former owner can only answer reads with old rows, until its next renewal.
//
// # Files
//
//	slots/<slot / 4096, hex>/<slot, hex>   "dhl1", kind, generation, number, length, payload, CRC
//	bases/<slot, hex>-<generation, hex>    the content of a base
//	alive/<generation>                     a number that the owner increments
//	released/<generation>                  empty
//	tmp/                                   files without their names yet
//
// The file system must have atomic links that fail if the name exists, must show a file that was opened after a change with that change,
// and must not acknowledge a sync early. Only local file systems were tested. NFS version 4 promises these properties; its clients may
// show an old list of a directory for a while, which only delays an acquisition.
package dirlog
