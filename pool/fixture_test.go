package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// fixture is a pool of a host in a bubble, and its reports.
type fixture struct {
	t       *testing.T
	options *Options
	fs      *objectstore.FS
	others  []dohost.Class // of the host, in addition to the pool's
	host    *dohost.Host
	offset  atomic.Int64 // of the pool's clock, as a time.Duration

	mu      sync.Mutex
	reports []string
}

// inPool runs fn with a pool in a bubble.
func inPool(t *testing.T, o *Options, fn func(ctx context.Context, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, options: o, fs: objectstore.NewMemFS()}
		f.open()
		defer f.close()
		fn(t.Context(), f)
	})
}

func (f *fixture) open() {
	f.t.Helper()
	class := classWith(f.options, func() time.Time { return time.Now().Add(time.Duration(f.offset.Load())) })
	h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{IdleAfter: -1, Listener: dohost.Listener{Service: f.report}}, f.fs),
		append([]dohost.Class{class}, f.others...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.host = h
}

func (f *fixture) close() {
	f.t.Helper()
	if err := f.host.Close(); err != nil {
		f.t.Error(err)
	}
}

// report records the reports of pools as "event role reason".
func (f *fixture) report(_ dohost.ID, event string, attrs ...slog.Attr) {
	name, ok := strings.CutPrefix(event, "pool:")
	if !ok {
		return
	}
	for _, a := range attrs {
		if slices.Contains([]string{"role", "workers", "tasks"}, a.Key) {
			name += " " + a.Value.String()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, name)
}

// took returns the reports so far, and forgets them.
func (f *fixture) took() (reports []string) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	reports, f.reports = f.reports, nil
	return reports
}

// sleep lets time pass, and with it the sweeps that are due.
func (f *fixture) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) pool() dohost.Stub[Pool] { return Pools.Get(f.host, "p") }

// call calls a method of the pool, which must succeed.
func call[In, Out any](f *fixture, m func(*Pool, context.Context, In) (Out, error), in In) Out {
	f.t.Helper()
	out, err := dohost.Call(f.t.Context(), f.pool(), m, in)
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// refused calls a method of the pool, which must refuse.
func refused[In, Out any](f *fixture, of error, m func(*Pool, context.Context, In) (Out, error), in In) {
	f.t.Helper()
	before := f.dump()
	if _, err := dohost.Call(f.t.Context(), f.pool(), m, in); !errors.Is(err, of) {
		f.t.Errorf("%+v: %v, want %v", in, err, of)
	}
	if after := f.dump(); after != before {
		f.t.Errorf("%+v: the refusal has changed\n%sto\n%s", in, before, after)
	}
}

func (f *fixture) join(role, conn string) {
	f.t.Helper()
	call(f, (*Pool).Join, JoinRequest{Role: role, Conn: conn})
}

func (f *fixture) post(role, text string) string {
	f.t.Helper()
	return call(f, (*Pool).Post, NewTask{Role: role, Text: text}).ID
}

// claim claims a task, and starts it if start is set.
func (f *fixture) claim(role, conn string, start bool) ClaimRef {
	f.t.Helper()
	c := call(f, (*Pool).Claim, ClaimRequest{Role: role, Conn: conn})
	if c.Task == nil {
		f.t.Fatalf("%s has no task for %s", role, conn)
	}
	h := ClaimRef{c.Task.ID, conn, c.Task.Fence}
	if start {
		call(f, (*Pool).Start, h)
	}
	return h
}

func (f *fixture) task(id string) Task {
	f.t.Helper()
	return call(f, (*Pool).Task, TaskQuery{id})
}

// state returns "status attempts" of a task.
func (f *fixture) state(id string) string {
	f.t.Helper()
	t := f.task(id)
	return fmt.Sprintf("%s %d", t.Status, t.Attempts)
}

// is compares the state of a task.
func (f *fixture) is(id, want string) {
	f.t.Helper()
	if got := f.state(id); got != want {
		f.t.Errorf("task %s is %s, want %s", id, got, want)
	}
}

func (f *fixture) role(name string) Role {
	f.t.Helper()
	for _, r := range call(f, dohost.NoArg((*Pool).Roles), struct{}{}).Roles {
		if r.Name == name {
			return r
		}
	}
	return Role{}
}

// take polls the commands of a role and takes the first.
func (f *fixture) take(role string) uint64 {
	f.t.Helper()
	q := call(f, (*Pool).Commands, PollRequest{Daemon: "d", Role: role})
	if len(q.Commands) != 1 {
		f.t.Fatalf("commands of %s: %+v, want one", role, q.Commands)
	}
	call(f, (*Pool).Take, TakeRequest{"d", role, q.Commands[0].Number})
	return q.Commands[0].Number
}

// requested reports whether a restart of a role is requested.
func (f *fixture) requested(role string) bool { f.t.Helper(); return f.role(role).Requested != nil }

// dump returns all rows of the pool.
func (f *fixture) dump() string {
	f.t.Helper()
	var b strings.Builder
	err := f.pool().Do(f.t.Context(), func(ctx context.Context, p *Pool) error {
		return errors.Join(dumpRows(ctx, &b, p, &workers), dumpRows(ctx, &b, p, &tasks), dumpRows(ctx, &b, p, &contents),
			dumpRows(ctx, &b, p, &roles), dumpRows(ctx, &b, p, &commands))
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return b.String()
}

func dumpRows[T any](ctx context.Context, b *strings.Builder, p *Pool, c *dohost.Collection[T]) error {
	rows, err := c.List(ctx, p.Storage(), nil)
	for _, row := range rows {
		text, err := json.Marshal(row.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s %s\n", c.Name, text)
	}
	return err
}

// equal compares lists of texts.
func equal(t *testing.T, name string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s:\n got %q\nwant %q", name, got, want)
	}
}
