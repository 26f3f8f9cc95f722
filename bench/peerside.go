package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// running is a process of the peer, and its store.
type running struct {
	*peer
	store  string
	cmd    *exec.Cmd
	listen string
}

// openPeer starts the peer in a directory of its own, with objects that each have a counter and rows.
func (b *bench) openPeer(ctx context.Context, objects, rows int) (*running, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil { // the process has another working directory
		return nil, err
	}
	r := &running{peer: b.peer, store: dir}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	if _, err := r.ask(ctx, "fill", map[string]int{"objects": objects, "rows": rows}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// start starts a process and waits until it listens. The process gets the maximum of open files, because it has three
// for each object.
func (r *running) start(ctx context.Context) error {
	output, control, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -n "$(ulimit -Hn)"; exec "$0" "$@"`,
		r.binary, "serve", "config.capnp", "--directory-path=store="+r.store, "--control-fd=3")
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = r.folder, os.Stderr, []*os.File{control}
	err = cmd.Start()
	_ = control.Close() // our copy; the process has its own
	if err != nil {
		return err
	}
	r.cmd = cmd
	var listens struct{ Port int }
	if err := json.NewDecoder(output).Decode(&listens); err != nil {
		return errors.Join(fmt.Errorf("it does not listen: %w", err), r.close())
	}
	r.listen = fmt.Sprintf("127.0.0.1:%d", listens.Port)
	return nil
}

// traced returns the tracer of the peer, its process and its folder, for tracee.
func (r *running) traced() (*tracer, int, string) {
	return &r.peer.trace, r.cmd.Process.Pid, filepath.Dir(r.store)
}

// close kills the process, and waits for its end.
func (r *running) close() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = r.cmd.Wait() // it was killed
	return nil
}

// ask calls a function of the worker, and returns the number that it answers.
func (r *running) ask(ctx context.Context, what string, arg map[string]int) (n int64, err error) {
	body, err := json.Marshal(arg)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.listen+"/bench/"+what, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", what, resp.Status)
	}
	return n, json.NewDecoder(resp.Body).Decode(&n)
}

// verifyCounts adds up the counts on the disk, with a new process.
func (r *running) verifyCounts(ctx context.Context, objects int, done int64) error {
	if err := errors.Join(r.close(), r.start(ctx)); err != nil {
		return err
	}
	sum, err := r.ask(ctx, "sum", map[string]int{"objects": objects})
	if err == nil && sum != done {
		err = fmt.Errorf("the objects hold %d, and %d calls were answered", sum, done)
	}
	return err
}

func (r *running) address() string { return r.listen }

func (r *running) evict(ctx context.Context, i int) error {
	_, err := r.ask(ctx, "end", map[string]int{"object": i})
	return err
}

// driven is the peer with a worker that calls its objects: the counterpart of counting.
type driven struct {
	*running
	objects, callers int
}

func (d *driven) work(ctx context.Context, m *meter) error {
	n, err := d.ask(ctx, "drive", map[string]int{
		"objects": d.objects, "outstanding": d.callers, "ms": int(time.Until(m.until).Milliseconds()),
	})
	m.worker().ops = n
	return err
}

func (d *driven) verify(ctx context.Context, done int64) error {
	return d.verifyCounts(ctx, d.objects, done)
}

// syncs are counted in a round of their own.
func (r *running) syncs() int64 { return 0 }
