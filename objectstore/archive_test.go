package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/errkind"
)

// archives calls f with a folder in memory and one on the disk.
func archives(t *testing.T, f func(t *testing.T, fs *FS, dir string)) {
	t.Run("memory", func(t *testing.T) { f(t, NewMemFS(), archiveDir) })
	t.Run("disk", func(t *testing.T) { f(t, nil, filepath.Join(t.TempDir(), "a", "b")) })
}

const objectName = "0000000000000002.records.0000000000000001"

func TestDirArchiveKeepsObjects(t *testing.T) {
	archives(t, func(t *testing.T, fsys *FS, dir string) {
		if list, err := ReadDirArchive(fsys, dir).List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("an absent folder: %v, %v", list, err)
		}
		a, err := OpenDirArchive(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDirArchive(fsys, dir); !errors.Is(err, ErrLocked) {
			t.Errorf("a second process: %v", err)
		}
		const base = "0000000000000001.base.00000.end"
		for range 2 {
			if err := errors.Join(a.Put(t.Context(), objectName, []byte("content")), a.Put(t.Context(), base, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Put(t.Context(), objectName, []byte("other")); !errors.Is(err, ErrObjectDiffers) || !errors.Is(err, errkind.ErrConflict) {
			t.Errorf("another content: %v", err)
		}
		if err := a.Put(t.Context(), "../x", nil); err == nil {
			t.Error("a name outside of the archive is accepted")
		}
		if err := ReadDirArchive(fsys, dir).Put(t.Context(), base, nil); !errors.Is(err, errkind.ErrForbidden) {
			t.Errorf("Put to an archive that is read: %v", err)
		}
		list, err := a.List(t.Context())
		if err != nil || fmt.Sprint(list) != fmt.Sprintf("[{%s 0} {%s 7}]", base, objectName) {
			t.Errorf("List: %v, %v", list, err)
		}
		if content, err := a.Get(t.Context(), objectName); err != nil || string(content) != "content" {
			t.Errorf("Get: %q, %v", content, err)
		}
		const second = "0000000000000003.records.0000000000000003"
		large := bytes.Repeat([]byte("0123456789"), maxWrite/4)
		if err := a.Put(t.Context(), second, large); err != nil {
			t.Error(err)
		}
		if content, err := a.Get(t.Context(), second); err != nil || !bytes.Equal(content, large) {
			t.Errorf("Get of an object of %d bytes: %d bytes, %v", len(large), len(content), err)
		}
		if _, err := a.Get(t.Context(), "absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Get of an absent object: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if fsys != nil {
			return
		}
		leftover := filepath.Join(dir, objectName+tempSuffix)
		mine := filepath.Join(dir, "mine.tmp")
		if err := errors.Join(os.WriteFile(leftover, nil, 0o600), os.WriteFile(mine, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if a, err = OpenDirArchive(fsys, dir); err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that a crash has left is still there: %v", err)
		}
		if _, err := os.Stat(mine); err != nil {
			t.Errorf("another program's file: %v", err)
		}
	})
}

// TestDirArchiveHasWholeObjectsWhereverPutIsCutOff cuts the power before each write of two puts, and fails each write.
func TestDirArchiveHasWholeObjectsWhereverPutIsCutOff(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	fsys := NewMemFS()
	a, err := OpenDirArchive(fsys, archiveDir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	has := func(at string, fsys *FS, must bool) {
		t.Helper()
		got, err := ReadDirArchive(fsys, archiveDir).Get(t.Context(), objectName)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !must:
		case err != nil || !bytes.Equal(got, content):
			t.Errorf("%s: an object of %d bytes, %v", at, len(got), err)
		}
	}
	done := false
	images := imagesOf(fsys, func() []int64 {
		if done {
			return []int64{1}
		}
		return nil
	}, func() {
		if err := a.Put(t.Context(), objectName, content); err != nil {
			t.Fatal(err)
		}
		done = true
		if err := a.Put(t.Context(), "0000000000000003.records.0000000000000003", content); err != nil {
			t.Fatal(err)
		}
	})
	for _, im := range images {
		has(im.at, im.fs, im.acked != nil)
	}
	if len(images) < 20 {
		t.Errorf("only %d images", len(images))
	}
	for k := int64(1); k <= 5; k++ {
		fsys := NewMemFS()
		a, err := OpenDirArchive(fsys, archiveDir)
		if err != nil {
			t.Fatal(err)
		}
		fault := errors.New("a fault")
		fsys.OnWrite(func(_, _ string, n int64) error {
			if n == k {
				return fault
			}
			return nil
		})
		at := fmt.Sprintf("write %d fails", k)
		if err := a.Put(t.Context(), objectName, content); !errors.Is(err, fault) {
			t.Errorf("%s: %v", at, err)
		}
		has(at, fsys, false)
		if err := a.Put(t.Context(), objectName, content); err != nil {
			t.Errorf("%s, again: %v", at, err)
		}
		has(at, fsys.Crash(0, 1), true)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirArchiveIgnoresALargeFile has a file of 1 TiB without content as the newest object of an archive.
func TestDirArchiveIgnoresALargeFile(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := OpenDirArchive(nil, folder)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		fsys := NewMemFS()
		for range 2 {
			s := shipTo(t, fsys, a)
			for i := range 3 {
				put(t, s, "o", "n", fmt.Sprint(i))
				time.Sleep(5 * time.Second)
			}
			if st := s.Stats().Ship; st.Records != 0 || st.Err != nil || st.NeedsBase {
				t.Errorf("%+v", st)
			}
			s.Abandon()
			list, err := a.List(t.Context())
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			last := list[len(list)-1].Name
			if err := os.Truncate(filepath.Join(folder, last), 1<<40); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Get(t.Context(), last); !errors.Is(err, ErrDamagedArchive) {
				t.Errorf("Get of %s: %v", last, err)
			}
		}
	})
}

// TestDirArchiveListsObjectsThatSurviveAPowerCut ends a process during a Put, after the rename: the power is cut after the next process has listed
// the object.
func TestDirArchiveListsObjectsThatSurviveAPowerCut(t *testing.T) {
	listed := 0
	for k := int64(1); k <= 5; k++ {
		fsys := NewMemFS()
		a, err := OpenDirArchive(fsys, archiveDir)
		if err != nil {
			t.Fatal(err)
		}
		fsys.OnWrite(func(_, _ string, n int64) error {
			if n >= k {
				return errors.New("the process has ended")
			}
			return nil
		})
		if err := a.Put(t.Context(), objectName, []byte("content")); err == nil {
			t.Fatalf("write %d of a Put does not fail it", k)
		}
		fsys.OnWrite(nil)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if a, err = OpenDirArchive(fsys, archiveDir); err != nil {
			t.Fatal(err)
		}
		list, err := a.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		listed += len(list)
		after, err := ReadDirArchive(fsys.Crash(0, 1), archiveDir).List(t.Context())
		if err != nil || len(after) != len(list) {
			t.Errorf("write %d fails: %v, after a power cut %v, %v", k, list, after, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if listed == 0 {
		t.Error("no Put has renamed its file")
	}
}

// TestDirArchiveLeavesSpaceForTheStore puts objects on a disk that is almost full.
func TestDirArchiveLeavesSpaceForTheStore(t *testing.T) {
	fsys, content := NewMemFS(), make([]byte, 1000)
	a, err := OpenDirArchive(fsys, archiveDir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	fsys.SetFree(256<<20 + 999)
	if err := a.Put(t.Context(), objectName, content); !errors.Is(err, ErrNoSpace) {
		t.Errorf("Put without space: %v", err)
	}
	if list, err := fsys.base.List(archiveDir); err != nil || len(list) != 1 {
		t.Errorf("a refused Put left %v, %v", list, err)
	}
	fsys.SetFree(256<<20 + 1000)
	if err := a.Put(t.Context(), objectName, content); err != nil {
		t.Errorf("Put with just enough space: %v", err)
	}
	fsys.SetFree(0)
	if err := a.Put(t.Context(), objectName, content); err != nil {
		t.Errorf("Put of an object that is there: %v", err)
	}
}
