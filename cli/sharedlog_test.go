package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// memoryLog is a kind of shared log that a program adds.
type memoryLog struct {
	Memory bool `help:"Keep the history in memory."`
	log    logtest.Log
}

func (m *memoryLog) OpenLog(context.Context, *slog.Logger) (sharedlog.Log, error) {
	if !m.Memory {
		return nil, nil
	}
	return &m.log, nil
}

func TestServeKeepsItsHistoryInTheSharedLogOfTheProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	added := &memoryLog{}
	r, w := io.Pipe()
	status := make(chan int, 1)
	serve := func(args ...string) []string {
		return append([]string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "off"}, args...)
	}
	go func() {
		status <- App{SharedLog: added}.Run(ctx, serve("--memory"), strings.NewReader(""), w, io.Discard)
		w.Close()
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatalf("serve has ended with status %d", <-status)
	}
	go io.Copy(io.Discard, r)
	cancel()
	if s := <-status; s != 0 || len(added.log.Records()) == 0 {
		t.Errorf("exit status %d, %d records", s, len(added.log.Records()))
	}

	for _, other := range []string{"--shared-log", "--ship"} {
		var out bytes.Buffer
		s := App{SharedLog: &memoryLog{}}.Run(t.Context(), serve("--memory", other, t.TempDir()), strings.NewReader(""), io.Discard, &out)
		if s != 1 || !strings.Contains(out.String(), "want neither") {
			t.Errorf("%s: exit status %d: %s", other, s, &out)
		}
	}
	var out bytes.Buffer
	if s := (App{}).Run(t.Context(), serve("--memory"), strings.NewReader(""), io.Discard, &out); s != 2 {
		t.Errorf("a flag of another program: exit status %d: %s", s, &out)
	}
}

// refusedCells are never opened.
type refusedCells struct{ memoryLog }

func (*refusedCells) OpenCells(context.Context, *slog.Logger) (*cluster.Options, error) {
	return nil, errors.New("the cells are opened")
}

func TestServeChecksItsFlagsBeforeItOpensCells(t *testing.T) {
	var out bytes.Buffer
	s := App{SharedLog: &refusedCells{}}.Run(t.Context(), []string{"serve", "--data", t.TempDir(), "--time-scale", "0"}, strings.NewReader(""), io.Discard, &out)
	if s != 1 || !strings.Contains(out.String(), "--time-scale 0") {
		t.Errorf("exit status %d: %s", s, &out)
	}
}

// waitingLog waits, as for the servers of a log.
type waitingLog struct {
	memoryLog
	waits chan struct{} // closed when it waits
}

func (w *waitingLog) OpenLog(ctx context.Context, _ *slog.Logger) (sharedlog.Log, error) {
	close(w.waits)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestServeUnderASupervisorEndsWhileItWaits passes on a signal, and ends the input, before the server has opened its log.
func TestServeUnderASupervisorEndsWhileItWaits(t *testing.T) {
	t.Setenv(supervisedEnv, "1")
	for name, c := range map[string]struct {
		end  func(w *io.PipeWriter) error
		want string
	}{
		"SIGINT":              {func(w *io.PipeWriter) error { _, err := w.Write([]byte{signalByte(os.Interrupt)}); return err }, "interrupt before"},
		"SIGTERM":             {func(w *io.PipeWriter) error { _, err := w.Write([]byte{signalByte(syscall.SIGTERM)}); return err }, "terminated before"},
		"the supervisor ends": {(*io.PipeWriter).Close, "terminated before"},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the server still waits"))
		defer cancel()
		in, w := io.Pipe()
		log := &waitingLog{waits: make(chan struct{})}
		status, out, data := make(chan int, 1), &bytes.Buffer{}, t.TempDir()
		go func() {
			status <- App{SharedLog: log}.Run(ctx, []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "off"}, in, io.Discard, out)
		}()
		<-log.waits
		if err := c.end(w); err != nil {
			t.Fatal(err)
		}
		if s := <-status; s != 1 || !strings.Contains(out.String(), c.want) {
			t.Fatalf("%s: exit status %d: %s", name, s, out)
		}
		w.Close()
	}
}
