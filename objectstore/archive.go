package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
	"github.com/dohost/dohost/internal/guard"
)

// Archive keeps the history of a store outside of it: a folder, or a bucket. Objects are never changed. Its methods may be
// called from any goroutine. They return when ctx ends; a store gives each call five minutes. For a store that ships, and for a standby,
// a method that panics or calls runtime.Goexit has failed: the error has one line, and the log gets the stack once while that lasts.
type Archive interface {
	// Put makes an object durable, completely or not at all. After it has returned, no goroutine of it may use content. Putting an object again with the
	// same content succeeds; with another content the error is ErrConflict of package dohost, and the object stays.
	Put(ctx context.Context, name string, content []byte) error
	// List returns all objects in the order of their names. It includes each object that Put has made durable.
	List(ctx context.Context) ([]ArchiveObject, error)
	// Get returns the content of an object. The archive must not change the slice afterwards.
	Get(ctx context.Context, name string) ([]byte, error)
}

// ArchiveObject is an object of an archive.
type ArchiveObject struct {
	Name string
	Size int64 // in bytes
}

// ErrObjectDiffers reports that an archive has an object of this name with another content.
var ErrObjectDiffers = errkind.New(errkind.ErrConflict, "the archive has another object of this name")

// errReadOnlyArchive reports a Put to an archive that was opened to be read.
var errReadOnlyArchive = errkind.New(errkind.ErrForbidden, "the archive was opened to be read")

// DirArchive is an archive in a folder. An object is a file; a file that is being written has a name that ends in
// ".tmp". Put writes the file under that name, syncs it, renames it and syncs the folder. Other programs may copy
// or delete files. The folder may be on the disk of the store: Put leaves 256 MiB of the disk free.
type DirArchive struct {
	fs   vfs.FS
	dir  string
	lock io.Closer // nil if the archive is only read
}

const tempSuffix = ".tmp"

// maxObject bounds the size of an object that a store ships, in bytes: frames of less than maxShipment in total, and one more frame.
const maxObject = int64(maxShipment + frame.MaxPayload + 1<<10)

// maxWrite bounds one write to a file of an archive, in bytes.
const maxWrite = 256 << 10

// archiveReserve is the free space that Put leaves, in bytes: the default of Options.ReserveBytes. A store on the same disk
// would fail without space for its log, and could not start.
const archiveReserve = 256 << 20

// OpenDirArchive opens the archive in dir, and makes dir if it is absent. It locks dir: one process at a time may put
// objects. It removes the files that a Put left when its process ended. The caller closes the archive after the store. fsys may be nil for the
// disk. Errors: ErrLocked, the errors of the disk.
func OpenDirArchive(fsys *FS, dir string) (*DirArchive, error) {
	a := ReadDirArchive(fsys, dir)
	if err := makeDir(a.fs, dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(a.fs, dir)
	if err != nil {
		return nil, err
	}
	names, err := a.fs.List(dir)
	for _, name := range names { // files that a crash has left
		if base, ok := strings.CutSuffix(name, tempSuffix); ok && err == nil && isArchiveName(base) {
			err = a.fs.Remove(a.fs.PathJoin(dir, name))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dohost: %w", err), lock.Close())
	}
	a.lock = lock
	return a, nil
}

// ReadDirArchive returns the archive in dir to be read, also while a store ships to it.
func ReadDirArchive(fsys *FS, dir string) *DirArchive {
	return &DirArchive{fs: (&Options{FS: fsys}).vfs(), dir: dir}
}

// Close releases the lock.
func (a *DirArchive) Close() error {
	if a.lock == nil {
		return nil
	}
	return a.lock.Close()
}

// callTime bounds a call of the archive by the shipper or by a standby. A call that takes longer has failed.
const callTime = 5 * time.Minute

// guardedArchive bounds the time of the calls of an archive, and returns its panics as errors.
type guardedArchive struct {
	archive Archive
	faults  *archiveFaults
}

// guard calls a method of the archive for an object, which is empty for a list.
func (a guardedArchive) guard(ctx context.Context, method, object string, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	failure := guard.Run(func() { err = call(ctx) })
	if fault := a.faults.ended(method, object, failure); fault != nil {
		return fmt.Errorf("dohost: %w", fault)
	}
	return err
}

// Put calls Put of the archive.
func (a guardedArchive) Put(ctx context.Context, name string, content []byte) error {
	return a.guard(ctx, "Put", name, func(ctx context.Context) error { return a.archive.Put(ctx, name, content) })
}

// List calls List of the archive.
func (a guardedArchive) List(ctx context.Context) (list []ArchiveObject, err error) {
	err = a.guard(ctx, "List", "", func(ctx context.Context) (err error) { list, err = a.archive.List(ctx); return err })
	return list, err
}

// Get calls Get of the archive.
func (a guardedArchive) Get(ctx context.Context, name string) (content []byte, err error) {
	err = a.guard(ctx, "Get", name, func(ctx context.Context) (err error) { content, err = a.archive.Get(ctx, name); return err })
	return content, err
}

func isArchiveName(name string) bool {
	_, ok := frame.ParseName(name)
	return ok
}

// Put makes an object durable. Errors: ErrObjectDiffers; ErrNoSpace if less than 256 MiB of the disk would stay free; an error for an archive of
// ReadDirArchive, and for a name that no store gives to an object; the errors of the disk.
func (a *DirArchive) Put(ctx context.Context, name string, content []byte) error {
	switch {
	case a.lock == nil:
		return errReadOnlyArchive
	case !isArchiveName(name):
		return fmt.Errorf("dohost: %q is no name of an object of an archive", name)
	}
	old, err := a.Get(ctx, name)
	switch {
	case err == nil && !bytes.Equal(old, content):
		return fmt.Errorf("%w: %s", ErrObjectDiffers, a.fs.PathJoin(a.dir, name))
	case err == nil: // an earlier Put may have failed to sync the folder
		return syncDir(a.fs, a.dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := a.checkSpace(uint64(len(content))); err != nil {
		return err
	}
	path := a.fs.PathJoin(a.dir, name)
	file, err := a.fs.Create(path+tempSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("dohost: %w", err)
	}
	if err = writeCopied(file, content); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = a.fs.Rename(path+tempSuffix, path)
	}
	if err != nil {
		_ = a.fs.Remove(path + tempSuffix) // a full disk; the first error counts
		return fmt.Errorf("dohost: %w", err)
	}
	return syncDir(a.fs, a.dir)
}

// writeCopied writes content by parts that are copied: a file system may change the slice of a write, and the shipper repeats a Put
// with the same content.
func writeCopied(to io.Writer, content []byte) error {
	part := make([]byte, min(len(content), maxWrite))
	for len(content) > 0 {
		n := copy(part, content)
		if _, err := to.Write(part[:n]); err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// checkSpace checks that the disk has space for an object of n bytes. If the file system does not report its usage,
// checkSpace returns nil.
func (a *DirArchive) checkSpace(n uint64) error {
	u, err := a.fs.GetDiskUsage(a.dir)
	if err == nil && u.AvailBytes < archiveReserve+n {
		return fmt.Errorf("%w: a file of %d bytes in %s would leave less than %d bytes of the disk free", ErrNoSpace, n, a.dir, archiveReserve)
	}
	return nil
}

// List returns the objects. A folder that is absent has none, but for a store that ships it is an error: it was there. The
// store deletes frames that the archive has, so List syncs the folder: a Put of this process or of an earlier one may have
// renamed a file without a sync.
func (a *DirArchive) List(ctx context.Context) (objects []ArchiveObject, err error) {
	names, err := a.fs.List(a.dir)
	if errors.Is(err, fs.ErrNotExist) && a.lock == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dohost: %w", err)
	}
	if a.lock != nil {
		if err := syncDir(a.fs, a.dir); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !isArchiveName(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := a.fs.Stat(a.fs.PathJoin(a.dir, name))
		if errors.Is(err, fs.ErrNotExist) { // another program has deleted it
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dohost: %w", err)
		}
		objects = append(objects, ArchiveObject{Name: name, Size: info.Size()})
	}
	return objects, nil
}

// Get returns the content of an object. A file that is larger than any object is not read: the error is ErrDamagedArchive.
func (a *DirArchive) Get(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := a.fs.Open(a.fs.PathJoin(a.dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("dohost: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if n := info.Size(); n > maxObject {
		err = fmt.Errorf("%w: %s has %d bytes, a store writes at most %d", ErrDamagedArchive, a.fs.PathJoin(a.dir, name), n, maxObject)
		return nil, errors.Join(err, file.Close())
	}
	content := make([]byte, info.Size())
	_, err = io.ReadFull(file, content)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("dohost: reading %s: %w", a.fs.PathJoin(a.dir, name), err)
	}
	return content, nil
}
