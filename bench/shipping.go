package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dohost/dohost"
)

const (
	notShipping = "not shipping"
	fileCopy    = "copy"

	restores      = 5       // after a first restore that is not measured
	restoredRows  = 1 << 16 // at most
	restoredValue = 4096    // bytes of a row's value
	rowsPerCall   = 16
)

// shipping is a side with a host that ships its records into a folder of the same disk.
type shipping struct {
	*counting
	archive *dohost.DirArchive
	b       *bench
}

// openArchive makes a folder for an archive.
func (b *bench) openArchive() (dir string, a *dohost.DirArchive, err error) {
	if dir, err = b.newDir(); err != nil {
		return "", nil, err
	}
	a, err = dohost.OpenDirArchive(dir)
	return dir, a, err
}

// openShipping opens a host that ships, with the callers of c.
func (b *bench) openShipping(c *counting) (*shipping, error) {
	_, a, err := b.openArchive()
	if err != nil {
		return nil, err
	}
	if c.host, err = b.open(dohost.Options{Ship: a}, nil); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return &shipping{c, a, b}, nil
}

// verify restores the archive, and adds up the counts of the restored store.
func (s *shipping) verify(ctx context.Context, done int64) error {
	if err := s.Host.Close(); err != nil {
		return err
	}
	dir, err := s.b.newDir()
	if err != nil {
		return err
	}
	if _, err := dohost.RestoreDir(ctx, s.archive, dir, dohost.RestorePoint{}); err != nil {
		return err
	}
	if s.host, err = openIn(dir, dohost.Options{}, nil); err != nil {
		return err
	}
	return s.counting.verify(ctx, done)
}

func (s *shipping) close() error { return errors.Join(s.host.close(), s.archive.Close()) }

// shippingCosts compares P1 and P3 with the same hosts that ship their records.
func shippingCosts(ctx context.Context, b *bench) error {
	for _, r := range []struct {
		id, what         string
		objects, callers int
	}{
		{"SH1", "P1 with records shipped to a folder", 1, 256},
		{"SH2", "P3 with records shipped to a folder", 1000, 64},
	} {
		callers := func() *counting {
			return &counting{objects: r.objects, callers: r.callers, method: (*subject).add}
		}
		ships, err := b.openShipping(callers())
		if err != nil {
			return err
		}
		without := callers()
		if without.host, err = b.open(dohost.Options{}, nil); err != nil {
			return errors.Join(err, ships.close())
		}
		row := Row{
			ID: r.id, What: r.what, Unit: "calls/s",
			Target: Target{Text: "≥ 0.95 of the row without shipping", Reference: notShipping, MinRatio: 0.95},
			Notes:  []string{"the folder is on the disk of the store", "verified in a store that was restored from the folder"},
		}
		if row.Sides, err = b.compare(ctx, named{ours, ships}, named{notShipping, without}); err != nil {
			return err
		}
		b.add(row)
	}
	return b.restoreRate(ctx)
}

// restoreRate measures the bytes of an archive that a restore reads in a second, compared with a copy of its files.
func (b *bench) restoreRate(ctx context.Context) (err error) {
	from, a, err := b.openArchive()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	rows := min(b.objects, restoredRows)
	if err := b.fillArchive(ctx, a, rows); err != nil {
		return err
	}
	var own, bare []float64
	var last string
	var read int64
	for n := range restores + 1 {
		if err := os.RemoveAll(last); err != nil { // nothing before the first
			return err
		}
		if last, err = b.newDir(); err != nil {
			return err
		}
		began := time.Now()
		restored, err := dohost.RestoreDir(ctx, a, last, dohost.RestorePoint{})
		took := time.Since(began)
		if err != nil {
			return err
		}
		rate, err := b.copyRate(from)
		if err != nil {
			return err
		}
		if read = restored.Bytes; n > 0 {
			own, bare = append(own, float64(read)/1e6/took.Seconds()), append(bare, rate)
		}
		b.progress("restore %d of %d", n, restores)
	}
	found, err := b.restoredRows(ctx, last)
	if err == nil && found != rows {
		err = fmt.Errorf("no figure: the restored store has %d rows, want %d", found, rows)
	}
	if err != nil {
		return err
	}
	b.add(Row{
		ID: "SH3", What: fmt.Sprintf("restore of a store from a folder with %d rows of 4 KiB", rows), Unit: "MB/s",
		Sides: []Figure{
			{Side: ours, Value: median(own), Rounds: own, Checked: int64(found)},
			{Side: fileCopy, Value: median(bare), Rounds: bare},
		},
		Target: Target{Text: "≥ 200 MB/s", MinValue: 200},
		Notes: []string{
			fmt.Sprintf("%.1f MB, read from the system's cache; the values cannot be compressed", float64(read)/1e6),
			"copy: the same files, copied to one file, which is synced",
		},
	})
	return nil
}

// fillArchive ships rows of a host that then closes.
func (b *bench) fillArchive(ctx context.Context, a *dohost.DirArchive, rows int) error {
	h, err := b.open(dohost.Options{Ship: a}, nil)
	if err != nil {
		return err
	}
	err = fillBy(b, 0, (rows+rowsPerCall-1)/rowsPerCall, func(i int) error {
		first := i * rowsPerCall
		_, err := dohost.Call(ctx, subjects.Get(h, name(i%fillers)), (*subject).putLarge, [2]int{first, min(first+rowsPerCall, rows)})
		return err
	})
	return errors.Join(err, h.Close())
}

// putLarge writes the rows from a number to before another one, each with a value that a compressor cannot shrink.
func (s *subject) putLarge(ctx context.Context, numbers [2]int) (int, error) {
	for n := numbers[0]; n < numbers[1]; n++ {
		value := make([]byte, 0, restoredValue)
		for block := 0; len(value) < restoredValue; block++ {
			hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)<<32|uint64(block)))
			value = append(value, hash[:]...)
		}
		if err := dohost.Put(ctx, s.st.Storage(), fmt.Sprintf("large/%012d", n), value); err != nil {
			return 0, err
		}
	}
	return numbers[1] - numbers[0], nil
}

// countLarge counts the rows of putLarge with a whole value.
func (s *subject) countLarge(ctx context.Context, _ int) (n int, err error) {
	for row, err := range dohost.All[[]byte](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "large/"}) {
		if err != nil {
			return n, err
		}
		if len(row.Value) == restoredValue {
			n++
		}
	}
	return n, nil
}

// restoredRows counts the rows of a restored store.
func (b *bench) restoredRows(ctx context.Context, dir string) (n int, err error) {
	h, err := openIn(dir, dohost.Options{}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for i := range fillers {
		rows, err := dohost.Call(ctx, subjects.Get(h, name(i)), (*subject).countLarge, 0)
		if err != nil {
			return n, err
		}
		n += rows
	}
	return n, nil
}

// copyRate copies all files of a folder into one file and syncs it. It returns the MB copied in a second.
func (b *bench) copyRate(from string) (rate float64, err error) {
	dir, err := b.newDir()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	to, err := os.Create(filepath.Join(dir, "copy"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	began, size := time.Now(), int64(0)
	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		n, err := io.Copy(to, f)
		size += n
		return errors.Join(err, f.Close())
	})
	if err := errors.Join(err, to.Sync()); err != nil {
		return 0, err
	}
	return float64(size) / 1e6 / time.Since(began).Seconds(), nil
}
