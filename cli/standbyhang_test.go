//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// status reads the status of the standby.
func (p *standbyProcess) status(t *testing.T) (st adminapi.Standby) {
	t.Helper()
	res, err := http.Get(p.admin + "/v1/standby")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

// hang puts a named pipe in the place of the next object: a read of it does not return before release. hang waits until the standby has
// listed it.
func (p *standbyProcess) hang(t *testing.T, folder string) (release func()) {
	t.Helper()
	st := p.status(t)
	for st.Record == 0 || st.Lag > 0 {
		st = p.status(t)
	}
	next := filepath.Join(folder, fmt.Sprintf("%016d.records.%016d", st.Record+1, st.Record+1))
	if err := syscall.Mkfifo(next, 0o600); err != nil {
		t.Fatal(err)
	}
	for p.status(t).Archived == st.Record {
	}
	return func() {
		w, err := os.OpenFile(next, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStandbyCommandEndsWhileAReadHangs ends a standby by a signal, and by a promotion, while a read of the folder does not return.
func TestStandbyCommandEndsWhileAReadHangs(t *testing.T) {
	root := t.TempDir()
	data, folder, copied := filepath.Join(root, "data"), filepath.Join(root, "shipped"), filepath.Join(root, "standby")
	shipCalls(t, data, folder, 3)
	ctx, interrupt := context.WithCancel(t.Context())
	p := startStandby(t, ctx, folder, copied)
	release := p.hang(t, folder)
	interrupt()
	if s := <-p.ended; s != 1 {
		t.Errorf("an interrupted standby has status %d, want 1", s)
	}
	line := p.log.until(t, " has not ended since ")
	if !strings.Contains(line, "of the archive "+folder) {
		t.Errorf("the error is %q, want the folder %s", line, folder)
	}
	release()
	p = startStandby(t, t.Context(), folder, copied)
	st := p.status(t)
	for p.status(t).Archived == st.Record {
	}
	var out strings.Builder
	if s := (App{Classes: []dohost.Class{tallyClass()}}).Run(t.Context(), []string{"promote", "--as-is", "--admin", p.admin}, strings.NewReader(""), &out, &out); s != 0 {
		t.Errorf("promote --as-is: status %d, %s", s, &out)
	}
	if s := <-p.ended; s != 0 {
		t.Errorf("a promoted standby has status %d", s)
	}
	p.out.until(t, "promoted as of record ")
	release()
}
