package dohost

import "github.com/dohost/dohost/objectstore"

// Archive keeps the history of a store outside of it. A host with [Options].Ship puts each durable record into its archive,
// with others of about a second in one object, and from time to time a base, which is the whole state.
//
// Shipping is asynchronous: no call waits for it, and an archive that is not available only lags. The archive has a prefix of
// the history at any time, and never a record that the store could still lose. [RestoreDir] makes a store of it, as of any
// record or time since the first base. If more than 1 GiB of records wait, the host drops them and ships a new base later;
// moments between the two cannot be restored.
//
// An implementation for a bucket puts an object only if there is none of that name. A bucket has no lock: the caller
// must exclude a second host that ships to the same archive. [DirArchive] is an archive in a folder.
type Archive = objectstore.Archive

// ArchiveObject is an object of an archive.
type ArchiveObject = objectstore.ArchiveObject

// DirArchive is an archive in a folder.
type DirArchive = objectstore.DirArchive

// OpenDirArchive opens the archive in dir for a host that ships to it, and makes dir if it is absent. It locks dir against
// other processes. Errors: [ErrConflict] if another process has it open, the disk's.
func OpenDirArchive(dir string) (*DirArchive, error) { return objectstore.OpenDirArchive(nil, dir) }

// ReadDirArchive returns the archive in dir for [RestoreDir], also while a host ships to it.
func ReadDirArchive(dir string) *DirArchive { return objectstore.ReadDirArchive(nil, dir) }
