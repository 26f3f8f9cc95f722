package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// workerd names the peer, its package of npm, and its sides.
const workerd = "workerd"

// peer is the runtime that dohost is compared with.
type peer struct {
	folder  string // with its worker and its configuration
	binary  string
	version string
	trace   tracer
}

// findPeers finds the peers of a list of names, with commas between them.
func (b *bench) findPeers(ctx context.Context, names string) (err error) {
	for name := range strings.SplitSeq(names, ",") {
		switch name {
		case workerd:
			b.peer, err = findWorkerd(ctx)
		case streamServerPackage:
			b.streams, err = findStreamPeer(ctx)
		default:
			return fmt.Errorf("-peer %q: want %s, %s, or both with a comma", name, workerd, streamServerPackage)
		}
		if err != nil {
			return fmt.Errorf("-peer %s: %w", name, err)
		}
	}
	return nil
}

// findTools returns an error that names a tool that is missing.
func findTools(names ...string) error {
	for _, tool := range names {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("there is no %s: install Node.js 18 or newer, with npm", tool)
		}
	}
	return nil
}

// findWorkerd installs workerd, unless it is there.
func findWorkerd(ctx context.Context) (*peer, error) {
	folder, err := inCheckout(filepath.Join("bench", workerd, "config.capnp"))
	if err != nil {
		return nil, err
	}
	if err := findTools("node", "npm"); err != nil {
		return nil, err
	}
	p := &peer{folder: filepath.Dir(folder)}
	_, err = p.run(ctx, "npm", "install",
		"--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
	if err != nil {
		return nil, fmt.Errorf("npm install in %s: %w", p.folder, err)
	}
	out, err := p.run(ctx, "node", "-p", `JSON.stringify(require("workerd"))`)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	var installed struct{ Default, Version string }
	if err := json.Unmarshal(out, &installed); err != nil {
		return nil, fmt.Errorf("node printed %q: %w", out, err)
	}
	p.binary, p.version = installed.Default, installed.Version
	p.trace = findTracer()
	return p, nil
}

// inCheckout returns the path of a file in the checkout of the working directory.
func inCheckout(file string) (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of dohost: run bench in one", here)
		}
	}
}

// run runs a tool in the peer's folder, and returns its output.
func (p *peer) run(ctx context.Context, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = p.folder
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(e.Stderr)))
	}
	return out, err
}

// fact describes the peer in the results.
func (p *peer) fact() string {
	return fmt.Sprintf("%s %s; %s; its own clock is too coarse for p50 and p99 of calls in process",
		workerd, p.version, p.trace.fact())
}
