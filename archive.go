package dohost

import "github.com/dohost/dohost/objectstore"

// Archive keeps the history of a store outside of the store. A host with [Options].Ship puts its durable records into its
// archive, about a second's records in one object, and from time to time a base, which is the whole state.
//
// Shipping is asynchronous: no call waits for it, and an unavailable archive only lags. At any time the archive has a prefix
// of the history, and never a record that the store could still lose. [RestoreDir] makes a store from it, as of any record or
// time since the first base. If more than 1 GiB of records wait, the host drops them and ships a new base later; the moments
// in between cannot be restored.
//
// A method that panics or calls runtime.Goexit is a call that has failed, for a host that ships and for a [Standby]. The error, such as
// StandbyStatus.Waiting, is one line with the name of the method; the Logger gets the stack, once while the method fails at the same place.
//
// An implementation for a bucket must put an object only if none of that name exists. A bucket has no lock: the
// caller must ensure that no second host ships to the same archive. [DirArchive] is an archive in a folder.
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
