package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	durable "github.com/dohost/dohost/streams"
)

// streamServer is a server of the Durable Streams protocol, with its streams on the disk: dohost or the peer.
type streamServer interface {
	address() string
	// restart ends the server, and starts one on the same files.
	restart(ctx context.Context) error
	syncs() int64
	close() error
}

// streamHost is a host that serves streams on loopback.
type streamHost struct {
	*dohost.Host
	fs     *objectstore.FS
	dir    string
	listen string
	stop   func() error
	firstSync
}

func (b *bench) openStreams(ctx context.Context) (s *streamHost, err error) {
	s = &streamHost{}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

func (s *streamHost) start(ctx context.Context) (err error) {
	s.fs = objectstore.DiskFS()
	s.fs.OnSynced(s.ended)
	if s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), durable.Classes(nil)...); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.listen, s.stop = l.Addr().String(), serveOn(l, durable.Server(s.Host, nil))
	return nil
}

func (s *streamHost) address() string { return s.listen }

func (s *streamHost) restart(ctx context.Context) error { return errors.Join(s.close(), s.start(ctx)) }

func (s *streamHost) syncs() int64 { return s.fs.Syncs() }

func (s *streamHost) close() error { return errors.Join(s.Close(), s.stop()) }

// streamServerPackage is the reference server of the protocol, a package of npm.
const streamServerPackage = "@durable-streams/server"

// streamPeer is the reference server.
type streamPeer struct {
	script, version string
	trace           tracer
}

// findStreamPeer finds the server that npm has installed for the end-to-end tests.
func findStreamPeer(context.Context) (*streamPeer, error) {
	script, err := inCheckout(filepath.Join("e2e", "js", "streams", "reference.mjs"))
	if err != nil {
		return nil, err
	}
	if err := findTools("node"); err != nil {
		return nil, err
	}
	e2e := filepath.Dir(filepath.Dir(filepath.Dir(script)))
	text, err := os.ReadFile(filepath.Join(e2e, "node_modules", filepath.FromSlash(streamServerPackage), "package.json"))
	if err != nil {
		return nil, fmt.Errorf("it is not installed: run npm install in %s: %w", e2e, err)
	}
	var installed struct{ Version string }
	if err := json.Unmarshal(text, &installed); err != nil {
		return nil, err
	}
	return &streamPeer{script, installed.Version, findTracer()}, nil
}

// fact describes the peer in the notes of a row.
func (p *streamPeer) fact() string {
	return fmt.Sprintf("%s %s, in a process of Node.js, with its streams in files; %s", streamServerPackage, p.version, p.trace.fact())
}

// runningStreams is a process of the reference server.
type runningStreams struct {
	*streamPeer
	dir, listen string
	cmd         *exec.Cmd
}

func (b *bench) openStreamPeer(ctx context.Context) (s *runningStreams, err error) {
	s = &runningStreams{streamPeer: b.streams}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// start starts a process and waits until it listens. Its output is a log.
func (s *runningStreams) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.listen = l.Addr().String()
	if err := l.Close(); err != nil { // its port is free for the process
		return err
	}
	_, port, _ := strings.Cut(s.listen, ":")
	cmd := exec.CommandContext(ctx, "node", s.script, port, s.dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	for end := time.Now().Add(time.Minute); ; {
		l, err := dial(ctx, s.listen)
		if err == nil {
			return l.conn.Close()
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("%s does not listen: %w", streamServerPackage, err), s.close())
		}
		if err := dohost.Sleep(ctx, 10*time.Millisecond); err != nil {
			return errors.Join(err, s.close())
		}
	}
}

func (s *runningStreams) traced() (*tracer, int, string) {
	return &s.trace, s.cmd.Process.Pid, filepath.Dir(s.dir)
}

func (s *runningStreams) address() string { return s.listen }

func (s *runningStreams) restart(ctx context.Context) error {
	return errors.Join(s.close(), s.start(ctx))
}

// syncs are counted in a round of their own.
func (s *runningStreams) syncs() int64 { return 0 }

// close kills the process, and waits for its end.
func (s *runningStreams) close() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = s.cmd.Wait() // it was killed
	return nil
}

// streamSides opens a side of dohost and, if there is a peer and withPeer, one of the peer.
func (b *bench) streamSides(ctx context.Context, withPeer bool, open func(streamServer) (side, error)) (sides []named, err error) {
	add := func(name string, at streamServer) error {
		s, err := open(at)
		if err != nil {
			return errors.Join(err, at.close())
		}
		if process, ok := at.(tracee); ok {
			s = outside{s, process}
		}
		sides = append(sides, named{name, s})
		return nil
	}
	h, err := b.openStreams(ctx)
	if err != nil {
		return nil, err
	}
	if err := add(ours, h); err != nil || b.streams == nil || !withPeer {
		return sides, err
	}
	p, err := b.openStreamPeer(ctx)
	if err == nil {
		err = add(streamServerPackage, p)
	}
	if err != nil {
		err = errors.Join(err, closeAll(sides))
	}
	return sides, err
}

// streamPath is the path of the i-th stream.
func streamPath(i int) string { return fmt.Sprintf("/v1/stream/bench/%d", i) }

// createStream creates the i-th stream.
func createStream(ctx context.Context, at streamServer, i int, contentType string) error {
	l, err := dial(ctx, at.address())
	if err != nil {
		return err
	}
	defer l.conn.Close()
	return l.succeed(http.MethodPut, streamPath(i), "Content-Type: "+contentType+"\r\n", nil)
}

// succeed makes a request, and returns an error unless its status is that of a success.
func (l *httpConn) succeed(method, path, fields string, body []byte) error {
	resp, text, err := l.request(method, path, fields, body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return err
}
