package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// TestRunServeEndsWithContext serves in this process, and cancels the context once the addresses are printed.
func TestRunServeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	var out bytes.Buffer
	r, w := io.Pipe()
	status := make(chan int, 1)
	go func() {
		args := []string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
		status <- App{}.Run(ctx, args, strings.NewReader(""), io.MultiWriter(&out, w), io.Discard)
		w.Close()
	}()
	for said := ""; !strings.Contains(said, "page "); {
		p := make([]byte, 1024)
		n, err := r.Read(p)
		if said += string(p[:n]); err != nil {
			t.Fatalf("serve has ended with status %d: %s", <-status, said)
		}
	}
	go io.Copy(io.Discard, r)
	cancel()
	if s := <-status; s != 0 {
		t.Errorf("exit status %d: %s", s, &out)
	}
	if s := (App{}).Run(t.Context(), []string{"check", dir}, strings.NewReader(""), &out, &out); s != 0 {
		t.Errorf("the store after it: exit status %d: %s", s, &out)
	}
}
