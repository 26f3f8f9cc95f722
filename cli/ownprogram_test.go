package cli_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program outside this module, with a class of its own: its only file has the main function.
const (
	mainFile = `package main

import (
	"example.com/greetings/greeter"

	"github.com/dohost/dohost/cli"
)

func main() { cli.Main(greeter.Class()) }
`
	classFile = `package greeter

import (
	"context"
	"fmt"

	"github.com/dohost/dohost"
)

// Greeter remembers whom it has met.
type Greeter struct{ store *dohost.Storage }

const Greeters dohost.Namespace[Greeter] = "greeter"

func New(_ context.Context, st *dohost.State) (*Greeter, error) { return &Greeter{st.Storage()}, nil }

func (g *Greeter) Greet(ctx context.Context, name string) (string, error) {
	if err := dohost.Add(ctx, g.store, name, 1); err != nil {
		return "", err
	}
	n, _, err := dohost.Get[int](ctx, g.store, name)
	return fmt.Sprintf("hello %s, for the %d. time", name, n), err
}

func Class() dohost.Class {
	return dohost.Bind(Greeters, New, nil, dohost.Expose("greet", (*Greeter).Greet))
}
`
)

// program builds a module of its own that uses this one.
func program(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	goSum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// The same versions as here, so that the go command downloads nothing.
	_, requirements, _ := strings.Cut(string(goMod), "\n")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/greetings\n" + requirements +
			"\nrequire github.com/dohost/dohost v0.0.0\nreplace github.com/dohost/dohost => " + root + "\n",
		"go.sum":             string(goSum),
		"main.go":            mainFile,
		"greeter/greeter.go": classFile,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "greetings.exe")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -ldflags=-w", "GOPROXY=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func TestProgramWithOwnClassInTenLines(t *testing.T) {
	t.Parallel()
	if n := strings.Count(strings.TrimSpace(mainFile), "\n") + 1; n > 10 {
		t.Errorf("the main function takes %d lines", n)
	}
	cmd := exec.Command(program(t), "--listen", "127.0.0.1:0", "--admin", "off", "--log", "off")
	cmd.Dir = t.TempDir()
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSpace(strings.TrimPrefix(line, "objects"))
	for _, want := range []string{`"hello gopher, for the 1. time"`, `"hello gopher, for the 2. time"`} {
		res, err := http.Post(base+"/objects/greeter/world/greet", "application/json", strings.NewReader(`"gopher"`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != want {
			t.Fatalf("answered %d %s (%v), want %s", res.StatusCode, body, err, want)
		}
	}
}
