//go:build unix

package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/objectstore"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most tests wait for other processes
	testscript.Main(m, map[string]func(){
		"dohost": main,
		"lab":    func() { cli.Main(scriptClass(), hangingClass(), fiberAgentClass()) },
		"forum":  func() { cli.Main(countingClasses()...) },
		"req":    req,
		"alarms": func() { cli.Main(alarmClass()) },
	})
}

// TestScripts runs a user's commands, and compares their output. In addition to dohost there are lab, which is
// the same over a class with a handler of each kind and one with a hanging handler, and req, a client of the
// objects of the last started server. Commands of its own:
//
//	start NAME PROGRAM ARGS...   starts a server; its admin listener goes to $DOHOST_ADMIN
//	again NAME                   waits until it logs its address once more, in another process
//	line NAME REGEXP             waits until the server has logged such a line
//	signal NAME TERM|INT|KILL
//	ended NAME STATUS            waits until the server has ended with it, or "killed";
//	                             its log is in NAME.log
//	corrupt FILE                 overwrites the middle of a file
//	misindex DIR FROM TO         moves an alarm, but not its index entry, to another object
func TestScripts(t *testing.T) {
	deadline, _ := t.Deadline()
	testscript.Run(t, testscript.Params{
		Deadline:            deadline,
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values["servers"] = map[string]*running{}
			e.Vars = append(e.Vars, "UNWRITABLE="+unwritable(e.WorkDir))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": start, "again": listensAgain, "line": line, "signal": sendSignal, "ended": ended, "corrupt": corrupt, "misindex": breakAlarmIndex,
		},
	})
}

// unwritable returns a folder that no user can create another in, root included.
func unwritable(work string) string {
	dir := filepath.Join(work, "unwritable")
	if os.Mkdir(dir, 0o555) != nil || os.Geteuid() == 0 {
		return "/proc/self"
	}
	return dir
}

// scriptTimeout is how long a script waits for an immediate result.
const scriptTimeout = 30 * time.Second

// running is a server that a script has started.
type running struct {
	cmd    *exec.Cmd
	pipe   *os.File // its standard error
	stdout *os.File // its standard output
	out    *bufio.Scanner
	logs   *bufio.Reader
	seen   strings.Builder
}

func server(ts *testscript.TestScript, name string) *running {
	s := ts.Value("servers").(map[string]*running)[name]
	if s == nil {
		ts.Fatalf("no server %s", name)
	}
	return s
}

var listens = regexp.MustCompile(`^(objects|admin|page) +((?:http://|unix:)\S+)$`)

func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM ARGS...")
	}
	path := ts.Getenv("PATH")
	program := ""
	for _, dir := range filepath.SplitList(path) {
		if _, err := os.Stat(filepath.Join(dir, args[1])); err == nil {
			program = filepath.Join(dir, args[1])
			break
		}
	}
	flags := append(slices.Clone(args[2:]), "--listen", "127.0.0.1:0")
	if !slices.Contains(flags, "--admin") {
		flags = append(flags, "--admin", "127.0.0.1:0")
	}
	cmd := exec.Command(program, flags...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + path, "DOHOST_LOG=" + ts.Getenv("DOHOST_LOG"), "DOHOST_GRACE=" + ts.Getenv("DOHOST_GRACE")}
	for i, v := range cmd.Env {
		if strings.HasSuffix(v, "=") {
			cmd.Env[i] = "UNSET=1"
		}
	}
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	s := &running{cmd: cmd, pipe: stderr.(*os.File), logs: bufio.NewReader(stderr), stdout: stdout.(*os.File), out: bufio.NewScanner(stdout)}
	ts.Value("servers").(map[string]*running)[args[0]] = s
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it has ended, or the script has failed
		_ = cmd.Wait()
	})
	s.listens(ts)
}

// listens waits until the server logs its address.
func (s *running) listens(ts *testscript.TestScript) {
	ts.Check(s.stdout.SetReadDeadline(time.Now().Add(scriptTimeout)))
	for range 3 {
		if !s.out.Scan() {
			_ = s.cmd.Process.Kill() // so that the wait ends
			rest, _ := io.ReadAll(s.logs)
			ts.Fatalf("it does not start (%v): %s", s.out.Err(), rest)
		}
		m := listens.FindStringSubmatch(s.out.Text())
		if m == nil {
			ts.Fatalf("it printed %q", s.out.Text())
		}
		ts.Setenv(map[string]string{"objects": "OBJECTS", "admin": "DOHOST_ADMIN", "page": "PAGE"}[m[1]], strings.TrimPrefix(m[2], "http://"))
	}
}

func listensAgain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: again NAME")
	}
	server(ts, args[0]).listens(ts)
}

func line(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: line NAME REGEXP")
	}
	s := server(ts, args[0])
	re := regexp.MustCompile(args[1])
	ts.Check(s.pipe.SetReadDeadline(time.Now().Add(scriptTimeout)))
	for {
		text, err := s.logs.ReadString('\n')
		s.seen.WriteString(text)
		if re.MatchString(text) {
			return
		}
		if err != nil {
			ts.Fatalf("%s has no line that matches %s (%v):\n%s", args[0], args[1], err, s.seen.String())
		}
	}
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME TERM|INT|KILL")
	}
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(server(ts, args[0]).cmd.Process.Signal(sig))
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME STATUS")
	}
	s := server(ts, args[0])
	ts.Check(s.pipe.SetReadDeadline(time.Now().Add(scriptTimeout)))
	if _, err := io.Copy(&s.seen, s.logs); err != nil {
		ts.Fatalf("%s does not end (%v):\n%s", args[0], err, s.seen.String())
	}
	status := "0"
	if exit, ok := errors.AsType[*exec.ExitError](s.cmd.Wait()); ok {
		status = fmt.Sprint(exit.ExitCode())
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			status = "killed"
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".log"), []byte(s.seen.String()), 0o644))
	if status != args[1] {
		ts.Fatalf("%s ended with %s, want %s:\n%s", args[0], status, args[1], s.seen.String())
	}
}

func corrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: corrupt FILE")
	}
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("no file %s", args[0])
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		ts.Check(err)
		for i := len(text) / 4; i < len(text)*3/4; i++ {
			text[i] ^= 0xff
		}
		ts.Check(os.WriteFile(f, text, 0o644))
	}
}

// breakAlarmIndex takes the alarm of an object in a closed store, without its entry in the index, gives it to another
// object, which has no entry, and writes a row of an unknown kind to that object.
func breakAlarmIndex(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: misindex DIR FROM TO")
	}
	s, err := objectstore.Open(ts.MkAbs(args[0]), nil)
	ts.Check(err)
	defer func() { ts.Check(s.Close()) }()
	// The store's own rows are in a space that has no exported name.
	const meta, slot, unknown = objectstore.Space('m'), "s", objectstore.Space('z')
	change := func(name string, fn func(*objectstore.Batch) error) {
		id, err := objectstore.ParseID(name)
		ts.Check(err)
		r, e := s.Range(id), s.NewEpoch()
		r.Begin(e)
		batch := r.NewBatch(e)
		ts.Check(fn(batch))
		ts.Check(r.Commit(batch)) // durable when the store is closed
	}
	var alarm []byte
	change(args[1], func(batch *objectstore.Batch) (err error) {
		if alarm, _, err = batch.Get(nil, meta, []byte(slot)); err != nil {
			return err
		}
		return batch.Delete(meta, []byte(slot), false)
	})
	change(args[2], func(batch *objectstore.Batch) error {
		return errors.Join(batch.Put(meta, []byte(slot), alarm, false), batch.Put(unknown, []byte("x"), []byte("1"), false))
	})
}

// req prints the status, some headers and the body of a response.
func req() {
	args := os.Args[1:]
	header := http.Header{}
	for len(args) > 1 && args[0] == "-H" {
		k, v, _ := strings.Cut(args[1], ": ")
		header.Set(k, v)
		args = args[2:]
	}
	url := args[1]
	if !strings.HasPrefix(url, "http:") {
		url = "http://" + os.Getenv("OBJECTS") + url
	}
	r, err := http.NewRequest(args[0], url, strings.NewReader(strings.Join(args[2:], " ")))
	if err == nil {
		r.Header = header
		if host := header.Get("Host"); host != "" {
			r.Host = host
		}
		err = show(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(r *http.Request) error {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode)
	for _, k := range []string{"Content-Type", "Retry-After", "X-Request-Id", "Www-Authenticate"} {
		if v := res.Header.Get(k); v != "" {
			fmt.Printf("%s: %s\n", k, v)
		}
	}
	_, err = io.Copy(os.Stdout, res.Body)
	fmt.Println()
	return err
}
