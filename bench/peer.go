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
	strace  string // the tool that counts its syncs
	blind   string // the reason if they are not counted
}

// findPeer installs the peer of that name, unless it is there.
func findPeer(ctx context.Context, name string) (*peer, error) {
	if name != workerd {
		return nil, fmt.Errorf("-peer %q: want %s", name, workerd)
	}
	folder, err := peerFolder()
	if err != nil {
		return nil, fmt.Errorf("-peer %s: %w", name, err)
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("-peer %s: there is no %s: install Node.js 18 or newer, with npm", name, tool)
		}
	}
	p := &peer{folder: folder}
	_, err = p.run(ctx, "npm", "install",
		"--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
	if err != nil {
		return nil, fmt.Errorf("-peer %s: npm install in %s: %w", name, folder, err)
	}
	out, err := p.run(ctx, "node", "-p", `JSON.stringify(require("workerd"))`)
	if err != nil {
		return nil, fmt.Errorf("-peer %s: node: %w", name, err)
	}
	var installed struct{ Default, Version string }
	if err := json.Unmarshal(out, &installed); err != nil {
		return nil, fmt.Errorf("-peer %s: node printed %q: %w", name, out, err)
	}
	p.binary, p.version = installed.Default, installed.Version
	if p.strace, err = exec.LookPath("strace"); err != nil {
		p.blind = "strace is not installed"
	}
	return p, nil
}

// peerFolder returns the peer's folder in the checkout of the working directory.
func peerFolder() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		folder := filepath.Join(dir, "bench", workerd)
		if _, err := os.Stat(filepath.Join(folder, "config.capnp")); err == nil {
			return folder, nil
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
	syncs := "its syncs were counted by strace in a separate round that is not listed"
	if p.blind != "" {
		syncs = "its syncs were not counted: " + p.blind
	}
	return fmt.Sprintf("%s %s; %s; its own clock is too coarse for p50 and p99 of calls in process",
		workerd, p.version, syncs)
}
