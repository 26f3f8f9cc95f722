package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// TestCommandEndsWithAKilledWorker kills a worker that no daemon manages. On other systems its command would remain.
func TestCommandEndsWithAKilledWorker(t *testing.T) {
	h, s, client, self := servePool(t, nil)
	if _, err := dohost.Call(t.Context(), pool.Pools.Get(h, "build"), dohost.NoResult((*pool.Pool).Declare), pool.DeclareRequest{Role: "upper"}); err != nil {
		t.Fatal(err)
	}
	l := listenForHolder(t)
	if _, err := client.Post(t.Context(), pool.NewTask{Role: "upper", Text: "hold " + l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "work", "--at", s.URL, "--pool", "build", "--role", "upper", "--", self)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := l.holder()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	ended(t, conn)
}
