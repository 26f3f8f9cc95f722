package dirlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
)

const (
	magic = "dhl1"
	// Kinds of slots.
	kindRecord = 'r'
	kindOwner  = 'o'
	kindBase   = 'b'
	headerSize = 4 + 1 + 8 + 8 + 4
	// slotsInFolder is how many slots a folder has.
	slotsInFolder = 1 << 12
	// maxRecord bounds a record, in bytes.
	maxRecord = 64 << 20

	private     = 0o600
	privateDirs = 0o700
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// slot is the content of a slot. The number belongs to the newest record up to this slot.
type slot struct {
	kind       byte
	generation uint64
	number     uint64
	payload    []byte
}

func (s *slot) encode() []byte {
	b := make([]byte, 0, headerSize+len(s.payload)+4)
	b = append(append(b, magic...), s.kind)
	b = binary.BigEndian.AppendUint64(b, s.generation)
	b = binary.BigEndian.AppendUint64(b, s.number)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.payload)))
	b = append(b, s.payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeSlot(b []byte) (s slot, err error) {
	switch {
	case len(b) < headerSize+4 || string(b[:4]) != magic:
		return s, errors.New("it is not a slot")
	case binary.BigEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli):
		return s, errors.New("its checksum does not match")
	case int(binary.BigEndian.Uint32(b[21:])) != len(b)-headerSize-4:
		return s, errors.New("its length is wrong")
	}
	return slot{b[4], binary.BigEndian.Uint64(b[5:]), binary.BigEndian.Uint64(b[13:]), b[headerSize : len(b)-4]}, nil
}

func (l *Log) folder(n uint64) string {
	return filepath.Join(l.dir, "slots", fmt.Sprintf("%013x", n/slotsInFolder))
}

func (l *Log) path(n uint64) string { return filepath.Join(l.folder(n), fmt.Sprintf("%016x", n)) }

// read reads a slot. The error is fs.ErrNotExist if the slot is empty.
func (l *Log) read(n uint64) (s slot, err error) {
	b, err := os.ReadFile(l.path(n))
	if err != nil {
		return s, fmt.Errorf("dirlog: %w", err)
	}
	if s, err = decodeSlot(b); err != nil {
		return s, fmt.Errorf("dirlog: damaged log: %s: %w", l.path(n), err)
	}
	return s, nil
}

// last returns the number of the last slot, and its content; 0 for an empty log. The slot of an old list may be purged.
func (l *Log) last() (n uint64, s slot, err error) {
	for range 3 {
		if n, s, err = l.lastListed(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return n, s, err
}

func (l *Log) lastListed() (n uint64, s slot, err error) {
	folders, err := os.ReadDir(filepath.Join(l.dir, "slots")) // sorted
	if err != nil {
		return 0, s, fmt.Errorf("dirlog: %w", err)
	}
	for i := len(folders) - 1; i >= 0; i-- {
		files, err := os.ReadDir(filepath.Join(l.dir, "slots", folders[i].Name()))
		if err != nil {
			return 0, s, fmt.Errorf("dirlog: %w", err)
		}
		if len(files) == 0 {
			continue // made for a slot that was not filled
		}
		name := files[len(files)-1].Name()
		if n, err = strconv.ParseUint(name, 16, 64); err != nil || filepath.Base(l.path(n)) != name {
			return 0, s, fmt.Errorf("dirlog: damaged log: %s is no slot", filepath.Join(l.dir, "slots", folders[i].Name(), name))
		}
		s, err = l.read(n)
		return n, s, err
	}
	return 0, s, nil
}

// after returns the first slot after one that is filled; 0 if there is none.
func (l *Log) after(n uint64) (next uint64, err error) {
	err = l.each(n+1, func(m uint64) (more bool, err error) {
		next = m
		return false, nil
	})
	return next, err
}

// each calls f for the filled slots from one on, in order, while f returns true.
func (l *Log) each(from uint64, f func(n uint64) (more bool, err error)) error {
	folders, err := os.ReadDir(filepath.Join(l.dir, "slots"))
	if err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	first := filepath.Base(l.folder(from))
	for _, folder := range folders {
		if folder.Name() < first {
			continue
		}
		files, err := os.ReadDir(filepath.Join(l.dir, "slots", folder.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("dirlog: %w", err)
		}
		for _, file := range files {
			n, err := strconv.ParseUint(file.Name(), 16, 64)
			if err != nil {
				return fmt.Errorf("dirlog: damaged log: %s is no slot", filepath.Join(l.dir, "slots", folder.Name(), file.Name()))
			}
			if n < from {
				continue
			}
			if more, err := f(n); !more || err != nil {
				return err
			}
		}
	}
	return nil
}

// errFilled reports that a slot has another content.
var errFilled = errors.New("the slot was filled by another owner")

// fill fills a slot. If the slot has this content already, that is a success. linked is false if the slot certainly does not have it. The
// texts of its errors do not begin with the name of the package.
func (l *Log) fill(n uint64, s *slot) (linked bool, err error) {
	content := s.encode()
	temp, err := os.CreateTemp(filepath.Join(l.dir, "tmp"), fmt.Sprintf("%d-", s.generation))
	if err != nil {
		return false, err
	}
	defer os.Remove(temp.Name()) // one that stays is removed by the next owner
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = l.makeFolder(n)
	}
	if err != nil {
		return false, err
	}
	err = os.Link(temp.Name(), l.path(n))
	if errors.Is(err, fs.ErrExist) {
		present, readErr := os.ReadFile(l.path(n))
		if readErr != nil {
			return true, readErr
		}
		if string(present) != string(content) {
			return false, errFilled
		}
		err = nil
	}
	if err == nil {
		err = syncDir(l.folder(n))
	}
	return true, err
}

func (l *Log) makeFolder(n uint64) error {
	err := os.Mkdir(l.folder(n), privateDirs)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errors.Join(err, syncDir(filepath.Join(l.dir, "slots")))
}

// syncDir makes the names in a directory durable. Windows has no such call, and does it itself.
func syncDir(dir string) error {
	if goruntime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
