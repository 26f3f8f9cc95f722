package objectstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/internal/frame"
)

// TestStandbyOfAFolderWithOtherFiles has a folder on the disk with files that no host writes. The standby ignores them, waits with the
// name of the file, or refuses it, and continues when the file is gone.
func TestStandbyOfAFolderWithOtherFiles(t *testing.T) {
	var whole *memArchive
	synctest.Test(t, func(t *testing.T) { whole = archiveOf(t, 6) })
	last, head := uint64(0), []byte(nil)
	for name, content := range whole.objects {
		n, _ := frame.ParseName(name)
		if last = max(last, n.Last); !n.Base() {
			head = content[:89] // of a frame
		}
	}
	next := frame.Name{Last: last + 1, First: last + 1}.String()
	later := frame.Name{Last: last + 5, First: last + 5}.String()
	loop := func(path string) error { return os.Symlink(path, path) }
	file := func(content string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
	}
	huge := strings.Clone(string(head))
	huge = huge[:5] + "\xff\xff\xff\xff" + huge[9:]
	for _, c := range []struct {
		what, name string
		make       func(path string) error
		waits      string
		refused    string
	}{
		{"another file", "notes.txt", file("x"), "", ""},
		{"a part of a copy", "." + next + ".a1b2c3", file("x"), "", ""},
		{"a part of a Put", next + tempSuffix, file("x"), "", ""},
		{"a loop with another name", "loop", loop, "", ""},
		{"a link to no file", next, func(path string) error { return os.Symlink(path+".absent", path) }, "", ""},
		{"a loop", next, loop, next, ""},
		{"a directory", next, func(path string) error { return os.Mkdir(path, 0o700) }, next, ""},
		{"a directory with a later number", later, func(path string) error { return os.Mkdir(path, 0o700) }, "are missing in the archive", ""},
		{"an empty file", next, file(""), "", fmt.Sprintf("record %d: it is missing", last+1)},
		{"a text", next, file("not a frame"), "", "it is not a frame"},
		{"a frame of 4 GiB", next, file(huge), "", "its frame has a payload of 4294967295 bytes"},
		{"a frame that is longer than its file", next, file(huge[:5] + "\x3f\xff\xff\xff" + huge[9:]), "", "its frame is cut off"},
		{"a file of 2 GiB", next, func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 2<<30))
		}, "", "a store writes at most"},
	} {
		t.Run(c.what, func(t *testing.T) {
			folder, path := t.TempDir(), ""
			for name, content := range whole.objects {
				if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path = filepath.Join(folder, c.name)
			y, err := OpenStandby(filepath.Join(t.TempDir(), "standby"), ReadDirArchive(nil, folder), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := y.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			err = y.runPass(t)
			st := y.Status()
			if c.refused == "" && err != nil || c.refused != "" && (!errors.Is(err, ErrDamagedArchive) || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%v; want %q", err, c.refused)
			}
			if !strings.Contains(st.Waiting, c.waits) || c.waits == "" && st.Waiting != "" {
				t.Errorf("the standby waits because %q, want %q", st.Waiting, c.waits)
			}
			if _, err := y.Promote(t.Context()); (c.waits != "" || c.refused != "") && err == nil {
				t.Error("the standby is promoted")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := y.runPass(t); err != nil {
				t.Error(err)
			}
			if st := y.Status(); st.Record != last || st.Waiting != "" {
				t.Errorf("without the file: %+v, want record %d", st, last)
			}
		})
	}
}

// TestPromoteOnADiskThatFails has a disk that refuses each write of a promotion, one after the other.
func TestPromoteOnADiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, fs, broken := archiveOf(t, 6), NewMemFS(), errors.New("no space left")
		y := standbyOf(t, fs, a)
		y.wantWaits(t, "")
		refused := 0
		for fail := int64(1); !y.Status().Promoted; fail++ {
			fs.OnWrite(func(_, _ string, n int64) error {
				if n == fail {
					return broken
				}
				return nil
			})
			switch _, err := y.Promote(t.Context()); {
			case err == nil:
			case errors.Is(err, broken):
				refused++
			default:
				t.Fatalf("write %d fails: %v", fail, err)
			}
			fs.OnWrite(nil)
		}
		if refused < 3 {
			t.Errorf("%d writes failed", refused)
		}
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(standbyDir, &Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		wantConsistent(t, s)
		s.Abandon()
	})
}
