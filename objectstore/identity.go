package objectstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/oklog/ulid/v2"
)

// Identity names a store and one of its histories. It is in the file DOHOST, in
// db/STORE and in the host record of the database. Identities are comparable.
type Identity struct {
	// Store is a ULID, drawn when the store is made. All copies of the store have it.
	Store string
	// Fork is a random number, never zero. Opening a backup draws another one, so two
	// histories that begin with the same records have different forks.
	Fork uint32
}

// String returns the id of the store and, in hexadecimal, its fork, joined by a slash.
func (i Identity) String() string { return fmt.Sprintf("%s/%08x", i.Store, i.Fork) }

// identityFile is the content of DOHOST and of db/STORE.
type identityFile struct {
	Identity
	// copied marks the directory as a backup that no host has opened: its fork is that of the source of the backup.
	copied bool
	// standby marks the directory as one that follows an archive: see Standby.
	standby bool
}

// The lines of an identity file.
const (
	formatLine   = "dohost store, format %d\n"
	identityLine = "store %s fork %08x\n"
	copiedLine   = "copy of " + identityLine
	standbyLine  = "standby of " + identityLine
)

func (f identityFile) String() string {
	return strings.TrimSuffix(fmt.Sprintf(f.line(), f.Store, f.Fork), "\n")
}

// line is the format of the line with the identity.
func (f *identityFile) line() string {
	switch {
	case f.copied:
		return copiedLine
	case f.standby:
		return standbyLine
	}
	return identityLine
}

// drawIdentity returns the identity of a store that is being made.
func drawIdentity(entropy io.Reader) (Identity, error) {
	id, err := ulid.New(ulid.Now(), entropy)
	if err != nil {
		return Identity{}, fmt.Errorf("dohost: drawing the id of a store: %w", err)
	}
	fork, err := drawFork(entropy, 0)
	return Identity{Store: id.String(), Fork: fork}, err
}

// drawFork returns a fork other than that of the parent.
func drawFork(entropy io.Reader, parent uint32) (uint32, error) {
	for {
		var b [4]byte
		if _, err := io.ReadFull(entropy, b[:]); err != nil {
			return 0, fmt.Errorf("dohost: drawing the fork of a store: %w", err)
		}
		if n := binary.BigEndian.Uint32(b[:]); n != 0 && n != parent {
			return n, nil
		}
	}
}

// writeIdentity writes an identity file, durably. A crash may leave a part of it.
func writeIdentity(fsys vfs.FS, dir, name string, f identityFile) error {
	file, err := fsys.Create(fsys.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("dohost: %w", err)
	}
	_, err = fmt.Fprintf(file, formatLine+"%v\n", formatNumber, f)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("dohost: %w", err)
	}
	return syncDir(fsys, dir)
}

// putIdentity writes an identity file under the name temp and renames it: after a
// crash the file is the old one or the new one.
func putIdentity(fsys vfs.FS, dir, name, temp string, f identityFile) error {
	if err := writeIdentity(fsys, dir, temp, f); err != nil {
		return err
	}
	return renameIdentity(fsys, dir, temp, name)
}

func renameIdentity(fsys vfs.FS, dir, from, to string) error {
	if err := fsys.Rename(fsys.PathJoin(dir, from), fsys.PathJoin(dir, to)); err != nil {
		return fmt.Errorf("dohost: %w", err)
	}
	return syncDir(fsys, dir)
}

// readIdentity reads an identity file. Errors: ErrForeign, ErrFormat, the disk's.
func readIdentity(fsys vfs.FS, path string) (f identityFile, err error) {
	file, err := fsys.Open(path)
	if err != nil {
		return f, fmt.Errorf("dohost: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, 256))
	if err = errors.Join(err, file.Close()); err != nil {
		return f, fmt.Errorf("dohost: %w", err)
	}
	format, identity, _ := strings.Cut(string(text), "\n")
	var n int
	if _, err := fmt.Sscanf(format+"\n", formatLine, &n); err != nil {
		return f, fmt.Errorf("%w: %s was not written by dohost", ErrForeign, path)
	}
	if n != formatNumber {
		return f, fmt.Errorf("%w: %s has format %d, this build reads format %d", ErrFormat, path, n, formatNumber)
	}
	f.copied, f.standby = strings.HasPrefix(identity, "copy "), strings.HasPrefix(identity, "standby ")
	_, err = fmt.Sscanf(identity, f.line(), &f.Store, &f.Fork)
	if _, idErr := ulid.ParseStrict(f.Store); err != nil || idErr != nil || f.Fork == 0 {
		return f, fmt.Errorf("%w: %s does not name a store and a fork", ErrForeign, path)
	}
	return f, nil
}

// wantDatabase checks, without changing anything, that the directory db exists and names the store that DOHOST names.
// A backup may have another fork there already if its first Open was cut off: the host record decides then. The database of a
// promoted standby still names the standby.
func wantDatabase(fsys vfs.FS, dir string, f identityFile) error {
	path := fsys.PathJoin(dir, dbName, dbIdentityName)
	db, err := readIdentity(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s names %v, but its database is missing or incomplete: %w",
			ErrAbsent, fsys.PathJoin(dir, formatName), f, err)
	case err != nil:
		return err
	case db == f, f.copied && db.Store == f.Store:
		return nil
	}
	return fmt.Errorf("%w: the database in %s belongs to another store: %s names %v, %s names %v",
		ErrForeign, fsys.PathJoin(dir, dbName), fsys.PathJoin(dir, formatName), f, path, db)
}

// wantManifest checks that the engine would find a database to open. If the file that names the manifest is missing,
// the engine would delete the tables.
func wantManifest(fsys vfs.FS, dir string) error {
	path := fsys.PathJoin(dir, dbName)
	desc, err := pebble.Peek(path, fsys)
	if err != nil {
		return fmt.Errorf("dohost: opening %s: %w", path, err)
	}
	if !desc.Exists {
		return fmt.Errorf("%w: %s has no file marker.manifest: the database was emptied, or copied in part", ErrAbsent, path)
	}
	return nil
}

// next returns the host record of this host, which follows last. Opening a backup draws a fork. An error reports that
// the database is not the one that DOHOST names.
func (f identityFile) next(last hostRecord, entropy io.Reader) (hostRecord, error) {
	next := hostRecord{identity: last.identity, parent: last.parent, generation: last.generation + 1}
	mine := last.identity == f.Identity
	if f.copied {
		mine = last.identity.Store == f.Store && (last.identity.Fork == f.Fork || last.parent == f.Fork)
	}
	if !mine {
		return next, fmt.Errorf("%w: DOHOST names %v, but the host record of the database names %v", ErrForeign, f, last.identity)
	}
	if !f.copied {
		return next, nil
	}
	fork, err := drawFork(entropy, f.Fork)
	next.identity.Fork, next.parent = fork, f.Fork
	return next, err
}
