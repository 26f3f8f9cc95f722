package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The requirements of the peers are checked before the first measurement.
func TestPeerNeedsNodeAndACheckout(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	refused := func(want string) {
		t.Helper()
		for _, name := range []string{workerd, streamServerPackage, workerd + "," + streamServerPackage} {
			err := run(t.Context(), []string{"-peer", name, "-run", "P2", "-for", "1ms", "-out", out})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("there are results")
			}
		}
	}
	t.Setenv("PATH", t.TempDir())
	refused("there is no node: install Node.js")
	t.Chdir(t.TempDir())
	refused("is not in a checkout of dohost")
}

// The reference server of streams is measured only if npm has installed it.
func TestStreamPeerNeedsItsPackage(t *testing.T) {
	checkout := t.TempDir()
	for name, text := range map[string]string{"e2e/js/streams/reference.mjs": "", "bin/node": "#!/bin/sh\n"} {
		path := filepath.Join(checkout, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(checkout, "bin"))
	t.Chdir(filepath.Join(checkout, "bin"))
	if _, err := findStreamPeer(t.Context()); err == nil || !strings.Contains(err.Error(), "it is not installed: run npm install in "+filepath.Join(checkout, "e2e")) {
		t.Error(err)
	}
	manifest := filepath.Join(checkout, "e2e", "node_modules", "@durable-streams", "server", "package.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(manifest), 0o755), os.WriteFile(manifest, []byte(`{"version": "0.3.7"}`), 0o644)); err != nil {
		t.Fatal(err)
	}
	if p, err := findStreamPeer(t.Context()); err != nil || p.version != "0.3.7" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestStraceCallsAreCounted(t *testing.T) {
	const table = `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.012433          13       942           fsync
 10.00    0.000100           7        14         1 fdatasync
------ ----------- ----------- --------- --------- ----------------
100.00    0.012533          13       956         1 total
`
	for text, want := range map[string]int64{table: 956, "": 0} {
		if n, err := countedCalls(text); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
}
