// Package dirlog is a shared log in a directory of a file system that several machines, or several processes of one machine, mount.
// It needs no server. Each record is a file, synced before it gets its name.
//
// # Fence
//
// The log is a sequence of slots, numbered from 1. A slot is a file that never changes, and holds a record or the beginning of an
// ownership. A slot is written to a temporary file, synced, and linked to its name, which fails if the name exists. So each slot has
// one writer, even if clocks are wrong. An owner fills only the slot after the last one that it knows. A host that acquires the log
// fills that slot itself, and the append of the former owner fails for good.
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
//	alive/<generation>                     a number that the owner increments
//	released/<generation>                  empty
//	tmp/                                   files without their names yet
//
// The file system must have atomic links that fail if the name exists, must show a file that was opened after a change with that change,
// and must not acknowledge a sync early. Only local file systems were tested. NFS version 4 promises these properties; its clients may
// show an old list of a directory for a while, which only delays an acquisition.
package dirlog
