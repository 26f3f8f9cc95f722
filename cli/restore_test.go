package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// tally counts its calls.
type tally struct{ st *dohost.State }

const tallies dohost.Namespace[tally] = "tally"

func newTally(_ context.Context, st *dohost.State) (*tally, error) { return &tally{st}, nil }

func tallyClass() dohost.Class { return dohost.Bind(tallies, newTally, nil) }

// add writes the number of a call.
func (c *tally) add(ctx context.Context, n int) (int, error) {
	return n, dohost.Put(ctx, c.st.Storage(), "n", n)
}

func (c *tally) get(ctx context.Context, _ int) (n int, err error) {
	n, _, err = dohost.Get[int](ctx, c.st.Storage(), "n")
	return n, err
}

// shipCalls lets a host on a store answer calls and ship to a folder.
func shipCalls(t *testing.T, data, folder string, calls int) {
	t.Helper()
	a, err := dohost.OpenDirArchive(folder)
	if err != nil {
		t.Fatal(err)
	}
	h, err := dohost.Open(data, &dohost.Options{Ship: a}, tallyClass())
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if _, err := dohost.Call(t.Context(), tallies.Get(h, "a"), (*tally).add, i+1); err != nil {
			t.Fatal(err)
		}
	}
	for h.Stats().Ship.NeedsBase { // the last one of a new store
		if _, err := dohost.Call(t.Context(), tallies.Get(h, "a"), (*tally).add, calls); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
}

// shipOneRecord fills a folder with the records of a new store.
func shipOneRecord(t *testing.T, folder string) {
	t.Helper()
	shipCalls(t, t.TempDir(), folder, 1)
}

// TestRestoreCommand restores the folder of two hosts.
func TestRestoreCommand(t *testing.T) {
	root := t.TempDir()
	data, folder, restored := filepath.Join(root, "data"), filepath.Join(root, "shipped"), filepath.Join(root, "new")
	run := func(want int, args ...string) string {
		t.Helper()
		var out strings.Builder
		if s := (App{Classes: []dohost.Class{tallyClass()}}).Run(t.Context(), args, strings.NewReader(""), &out, &out); s != want {
			t.Errorf("dohost %s: status %d: %s", strings.Join(args, " "), s, &out)
		}
		return out.String()
	}
	has := func(text, part string) {
		t.Helper()
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %q", part, text)
		}
	}
	value := func(dir string) (n int) {
		t.Helper()
		h, err := dohost.Open(dir, nil, tallyClass())
		if err != nil {
			t.Fatal(err)
		}
		n, err = dohost.Call(t.Context(), tallies.Get(h, "a"), (*tally).get, 0)
		if err := errors.Join(err, h.Close()); err != nil {
			t.Fatal(err)
		}
		return n
	}
	shipCalls(t, data, folder, 3)
	shipCalls(t, data, folder, 3)
	has(run(0, "restore", "--from", folder, "--data", restored), "as of record ")
	run(0, "check", restored)
	if n := value(restored); n != 3 {
		t.Errorf("the restored object has %d", n)
	}
	has(run(1, "restore", "--from", folder, "--data", restored), "is not empty")
	for _, to := range [][]string{{"--data", filepath.Join(root, "x")}, {"--object", "tally/a", "--out", filepath.Join(root, "x")}} {
		has(run(1, append([]string{"restore", "--from", filepath.Join(root, "none")}, to...)...), "none: there is no such folder")
	}
	has(run(1, "restore", "--from", folder, "--data", filepath.Join(root, "x"), "--at", "99"), "its newest record is")
	has(run(1, "restore", "--from", folder, "--data", filepath.Join(root, "x"), "--at", "2001-01-01T00:00:00Z"), "its first base is of record")
	has(run(2, "restore", "--from", folder, "--data", filepath.Join(root, "x"), "--at", "0"), "want the number of a record, a bookmark, or a time")
	has(run(1, "restore", "--from", folder, "--data", filepath.Join(folder, "x")), "not within each other")
	has(run(1, "serve", "--data", restored, "--ship", folder, "--listen", "127.0.0.1:0", "--admin", "off"), "the archive is not of this store's history")
	has(run(1, "serve", "--data", data, "--ship", filepath.Join(data, "ship"), "--listen", "127.0.0.1:0"), "not within each other")
	lock, err := dohost.OpenDirArchive(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	has(run(1, "serve", "--data", data, "--ship", folder, "--listen", "127.0.0.1:0", "--admin", "off"), "locked by another host")
	runs, err := filepath.Glob(filepath.Join(folder, "*.records.*"))
	if err != nil || len(runs) == 0 {
		t.Fatalf("%v, %v", runs, err)
	}
	content, err := os.ReadFile(runs[len(runs)-1])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(runs[len(runs)-1], content, 0o600); err != nil {
		t.Fatal(err)
	}
	var last uint64
	if _, err := fmt.Sscanf(filepath.Base(runs[len(runs)-1]), "%d.", &last); err != nil {
		t.Fatal(err)
	}
	has(run(1, "restore", "--from", folder, "--data", filepath.Join(root, "x")), fmt.Sprintf("record %d: the checksum", last))
	run(0, "restore", "--from", folder, "--data", filepath.Join(root, "y"), "--at", fmt.Sprint(last-1))
}

// TestRestoreCommandWritesOneObject exports an object from the folder of two hosts, and imports it in a third one.
func TestRestoreCommandWritesOneObject(t *testing.T) {
	root := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(root, "tmp"))
	folder, file := filepath.Join(root, "shipped"), filepath.Join(root, "a.export")
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) (out, errs string) {
		t.Helper()
		var o, e strings.Builder
		s := (App{Classes: []dohost.Class{tallyClass()}}).Run(t.Context(), append([]string{"restore", "--from", folder}, args...), strings.NewReader(""), &o, &e)
		if s != want {
			t.Errorf("restore %s: status %d: %s", strings.Join(args, " "), s, &e)
		}
		if left, err := os.ReadDir(filepath.Join(root, "tmp")); err != nil || len(left) > 0 {
			t.Errorf("restore %s leaves %v, %v", strings.Join(args, " "), left, err)
		}
		return o.String(), e.String()
	}
	data := filepath.Join(root, "data")
	shipCalls(t, data, folder, 3)
	shipCalls(t, data, folder, 5)
	report, _ := run(0, "--object", "tally/a", "--out", file)
	if !strings.Contains(report, "wrote tally/a from store ") {
		t.Errorf("the report is %q", report)
	}
	export, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, report := run(0, "--object", "tally/a")
	if out != string(export) || !strings.Contains(report, "as of record ") {
		t.Errorf("the output has %d bytes, the file %d; the report is %q", len(out), len(export), report)
	}
	h, err := dohost.Open(filepath.Join(root, "new"), nil, tallyClass())
	if err != nil {
		t.Fatal(err)
	}
	err = h.Import(t.Context(), dohost.ID{Class: "tally", Name: "b"}, strings.NewReader(out))
	if n, callErr := dohost.Call(t.Context(), tallies.Get(h, "b"), (*tally).get, 0); errors.Join(err, callErr, h.Close()) != nil || n != 5 {
		t.Errorf("the imported object has %d, %v, %v", n, err, callErr)
	}
	var store string
	var fork uint32
	var record uint64
	line := strings.NewReplacer("/", " ", ",", " ").Replace(report)
	if _, err := fmt.Sscanf(line, "wrote tally a from store %s %x as of record %d", &store, &fork, &record); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	at := func(fork uint32) string { return fmt.Sprintf("%016d-%08x-%s", record, fork, store) }
	if out, _ := run(0, "--object", "tally/a", "--at", at(fork)); out != string(export) {
		t.Errorf("as of a bookmark: %d bytes, want %d", len(out), len(export))
	}
	for _, c := range []struct{ args, want string }{
		{"--object tally/a --at " + at(fork+1), "the bookmark is of another history"},
		{"--object tally/none --out " + data + "2", "no such object: tally/none"},
		{"--object tally/a --at 999", "its newest record is"},
		{"--object tally/a --out " + file, "file exists"},
		{"--object tally/a --data " + data + "2", "want either --data"},
		{"--at 3", "want either --data"},
		{"--data " + data + "2 --out " + file, "want it with --object only"},
		{"--object tally/a --over --at 3", "want it without --from"},
	} {
		if _, errs := run(1, strings.Fields(c.args)...); !strings.Contains(errs, c.want) {
			t.Errorf("restore %s: %q, want %q", c.args, errs, c.want)
		}
	}
	if _, err := os.Stat(data + "2"); err == nil {
		t.Error("a refused command has made a store")
	}
}
