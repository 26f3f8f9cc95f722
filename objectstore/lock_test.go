package objectstore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLockAppliesToSymlinkedPaths opens a store again in the same process, through
// symbolic links to its directory and to its database.
func TestLockAppliesToSymlinkedPaths(t *testing.T) {
	base := t.TempDir()
	first := filepath.Join(base, "first")
	s, err := Open(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	link := filepath.Join(base, "link")
	if err := os.Symlink(first, link); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(base, "second")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	format, err := os.ReadFile(filepath.Join(first, formatName))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(second, formatName), string(format))
	if err := os.Symlink(filepath.Join(first, dbName), filepath.Join(second, dbName)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{link, second} {
		for _, readOnly := range []bool{false, true} {
			s, err := Open(dir, &Options{ReadOnly: readOnly})
			if err == nil {
				s.Abandon()
			}
			if !errors.Is(err, ErrLocked) {
				t.Errorf("second host at %s, read-only %v: %v; want ErrLocked", dir, readOnly, err)
			}
		}
	}
}

// TestLockSurvivesReadingTheDirectory reads the lock files in the process that holds
// them, as a backup agent does that is linked into it, and then opens the store in
// another process.
func TestLockSurvivesReadingTheDirectory(t *testing.T) {
	const env = "OBJECTSTORE_LOCK_CHILD"
	const locked = 37
	if dir := os.Getenv(env); dir != "" {
		s, err := Open(dir, nil)
		if errors.Is(err, ErrLocked) {
			os.Exit(locked)
		}
		if err == nil {
			s.Abandon()
		}
		t.Fatalf("Open in a second process: %v; want ErrLocked", err)
	}
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	for _, name := range []string{lockName, filepath.Join(dbName, "LOCK")} {
		if _, err := os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLockSurvivesReadingTheDirectory$")
	child.Env = append(os.Environ(), env+"="+dir)
	out, err := child.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != locked {
		t.Errorf("second process: %v\n%s", err, out)
	}
}
