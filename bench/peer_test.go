package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The requirements of the peer are checked before the first measurement.
func TestPeerNeedsNodeAndACheckout(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	refused := func(want string) {
		t.Helper()
		err := run(t.Context(), []string{"-peer", "workerd", "-run", "P2", "-for", "1ms", "-out", out})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("there are results")
		}
	}
	t.Setenv("PATH", t.TempDir())
	refused("there is no node: install Node.js")
	t.Chdir(t.TempDir())
	refused("is not in a checkout of dohost")
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
