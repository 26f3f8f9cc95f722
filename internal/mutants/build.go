package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildLimit is how long a build may take.
const buildLimit = 5 * time.Minute

// build is a running build of a package's test.
type build struct {
	binary string
	cmd    *exec.Cmd
	cancel context.CancelFunc
	out    bytes.Buffer
	err    error // the reason why it did not start
}

// begin starts to build the test of a package, with the patch of m unless m is nil.
func (c *checker) begin(ctx context.Context, m *mutation, pkg string) *build {
	b := new(build)
	dir, err := os.MkdirTemp(c.dir, "build")
	if err != nil {
		b.err = err
		return b
	}
	b.binary = filepath.Join(dir, "test")
	// Without debugging information, which costs half of the linker's time.
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", b.binary}
	if m != nil {
		overlay, err := c.overlay(ctx, m, dir)
		if err != nil {
			b.err = err
			return b
		}
		args = append(args, "-overlay="+overlay)
	}
	ctx, b.cancel = context.WithTimeout(ctx, buildLimit)
	b.cmd = exec.CommandContext(ctx, "go", append(args, pkg)...)
	b.cmd.Dir = c.root
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	b.err = b.cmd.Start()
	return b
}

// wait waits for the build, and returns the path of the test.
func (b *build) wait() (binary string, err error) {
	if b.cancel != nil {
		defer b.cancel()
	}
	if b.err != nil {
		return "", b.err
	}
	if err := b.cmd.Wait(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, b.out.Bytes())
	}
	return b.binary, nil
}

// overlay patches copies of the files, and returns the list that go build reads.
func (c *checker) overlay(ctx context.Context, m *mutation, dir string) (string, error) {
	replace := map[string]string{}
	for _, file := range m.files {
		from, to := filepath.Join(c.root, filepath.FromSlash(file)), filepath.Join(dir, filepath.FromSlash(file))
		text, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("it does not apply: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[from] = to
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", m.path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // no repository: apply here
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not apply: %w\n%s", err, out)
	}
	for from, to := range replace {
		if same, err := sameFiles(from, to); err != nil || same {
			return "", errors.Join(err, fmt.Errorf("it does not apply: %s is unchanged", from))
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o644)
}

func sameFiles(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	return bytes.Equal(x, y), errors.Join(err, err2)
}

// testLimit is how long a test may take; a mutation may make it hang.
const testLimit = 3 * time.Minute

// runTest runs a built test of a package.
func (c *checker) runTest(ctx context.Context, binary, pkg string, args ...string) (output string, passed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit+15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.timeout=" + testLimit.String()}, args...)...)
	cmd.Dir = filepath.Join(c.root, filepath.FromSlash(pkg))
	out, err := cmd.CombinedOutput()
	output = string(out)
	var exit *exec.ExitError
	switch {
	case strings.Contains(output, "no tests to run"):
		return output, false, fmt.Errorf("%s has no such test: %s", pkg, strings.Join(args, " "))
	case ctx.Err() != nil || strings.Contains(output, "panic: test timed out"):
		return output, false, fmt.Errorf("it hangs:\n%s", tail(output))
	case err != nil && !errors.As(err, &exit):
		return output, false, err
	}
	return output, err == nil, nil
}

// tail returns the end of a text that may be long.
func tail(s string) string { return s[max(0, len(s)-2000):] }
