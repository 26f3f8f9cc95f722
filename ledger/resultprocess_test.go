//go:build unix

package ledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// The processes of TestResultFileAfterSIGKILL are the test binary with an argument in this variable.
const processVariable = "LEDGER_TEST_PROCESS"

// The files of these processes, in addition to the standard ones: a sandbox reads from gate before it ends, and writes to news.
const (
	gateFile = 3 + iota
	newsFile
)

// job is an object whose operation runs in a sandbox: a process that outlives the host.
type job struct{ st *dohost.State }

const jobs = dohost.Namespace[job]("job")

// runProcess is the main function of a host or of a sandbox, with the directory of the test.
func runProcess(dir string) error {
	if role, id, ok := strings.Cut(os.Getenv(processVariable), " "); ok && role == "sandbox" {
		return runSandbox(dir, ledger.ID(id))
	}
	results := ledger.ResultDir(filepath.Join(dir, "results"))
	kind := ledger.Kind[string, string]{
		Name: "run", Same: ledger.Whole[string], Policy: ledger.PolicyReconcile, Find: ledger.FindResult[string, string](results, ledger.AnswerUnknown),
		Unknown: func(ledger.ID, string) string { return "the run may have happened" },
	}
	class := dohost.Bind(jobs, func(_ context.Context, st *dohost.State) (*job, error) { return &job{st}, nil },
		&dohost.Handlers[job]{Extensions: []dohost.ClassExtension{ledger.Declare(&kind)}})
	h, err := dohost.Open(filepath.Join(dir, "data"), nil, class)
	if err != nil {
		return err
	}
	err = jobs.Get(h, "1").Do(context.Background(), func(ctx context.Context, j *job) error {
		got, err := ledger.Do(ctx, j.st, &kind, "build", func(_ context.Context, id ledger.ID) (string, error) {
			if err := startProcess("sandbox "+string(id), dir, os.NewFile(gateFile, "gate"), os.NewFile(newsFile, "news")).Run(); err != nil {
				return "", err
			}
			result, _, err := kind.Find(ctx, id, "build")
			return result, err
		})
		if errors.Is(err, ledger.ErrUnknown) {
			got, err = "unknown", nil
		}
		fmt.Println(got)
		return err
	})
	return errors.Join(err, h.Close())
}

// runSandbox has its effect, and writes its result when the test opens the gate.
func runSandbox(dir string, id ledger.ID) error {
	f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, id); err != nil {
		return err
	}
	news := os.NewFile(newsFile, "news")
	defer news.Close() // the test waits for that, or for the end of the process: not for the cleanup of a file that is unreachable
	if _, err := fmt.Fprintln(news, os.Getpid()); err != nil {
		return err
	}
	if _, err := io.ReadAll(os.NewFile(gateFile, "gate")); err != nil {
		return err
	}
	return ledger.ResultDir(filepath.Join(dir, "results")).Write(id, "the report of "+string(id))
}

func startProcess(role, dir string, gate, news *os.File) *exec.Cmd {
	c := exec.Command(os.Args[0], dir)
	c.Env = append(os.Environ(), processVariable+"="+role)
	c.ExtraFiles = []*os.File{gate, news}
	c.Stderr = os.Stderr
	return c
}

// TestResultFileAfterSIGKILL kills the host while a sandbox runs its operation. The next host returns the result that the sandbox has
// written until then; if the sandbox was killed as well, the outcome is unknown. In no case does the operation run again.
func TestResultFileAfterSIGKILL(t *testing.T) {
	for name, killed := range map[string]bool{"the sandbox ends": false, "the sandbox is killed": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			gate, openGate, news, closeNews := pipes(t)
			host := startProcess("host ", dir, gate, closeNews)
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			_ = errors.Join(gate.Close(), closeNews.Close()) // the copies of this process
			lines := bufio.NewReader(news)
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // killed
			if killed {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			_ = openGate.Close()
			if _, err := io.ReadAll(lines); err != nil { // until the sandbox has ended
				t.Fatal(err)
			}
			effects, err := os.ReadFile(filepath.Join(dir, "effects"))
			if err != nil {
				t.Fatal(err)
			}
			want := "the report of " + string(effects)
			if killed {
				want = "unknown\n"
			}
			for range 2 {
				gate, openGate, _, closeNews := pipes(t)
				_ = openGate.Close() // a second run would end immediately
				next := startProcess("host ", dir, gate, closeNews)
				if got, err := next.Output(); err != nil || string(got) != want {
					t.Errorf("the next host: %q, %v; want %q", got, err, want)
				}
			}
			if all, err := os.ReadFile(filepath.Join(dir, "effects")); err != nil || string(all) != string(effects) || strings.Count(string(all), "\n") != 1 {
				t.Errorf("the effects are %q, %v", all, err)
			}
		})
	}
}

// pipes returns two pipes, which are closed at the end of the test.
func pipes(t *testing.T) (gate, openGate, news, closeNews *os.File) {
	t.Helper()
	for _, ends := range [][2]**os.File{{&gate, &openGate}, {&news, &closeNews}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		*ends[0], *ends[1] = r, w
		t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) }) // some are closed before
	}
	return gate, openGate, news, closeNews
}

func init() {
	if os.Getenv(processVariable) == "" {
		return
	}
	if err := runProcess(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
