//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/dohost/dohost"
)

// bench is an object with a handler of each kind, for scripts.
type bench struct{ st *dohost.State }

const benches dohost.Namespace[bench] = "bench"

func lab() dohost.Class {
	return dohost.Bind(benches, func(_ context.Context, st *dohost.State) (*bench, error) { return &bench{st}, nil },
		dohost.Expose("put", (*bench).Put), dohost.Expose("get", (*bench).Get), dohost.Expose("fail", (*bench).Fail),
		dohost.Expose("panic", (*bench).Panic), dohost.Expose("linger", (*bench).Linger), dohost.Expose("ignore", (*bench).Ignore),
		dohost.Expose("hold", (*bench).Hold), dohost.Expose("break", (*bench).Break),
		dohost.OnAlarm((*bench).Alarm), dohost.OnHTTP((*bench).ServeHTTP))
}

func (b *bench) Put(ctx context.Context, v string) (struct{}, error) {
	return struct{}{}, dohost.Put(ctx, b.st.Storage(), "v", v)
}

func (b *bench) Get(ctx context.Context, _ struct{}) (string, error) {
	v, _, err := dohost.Get[string](ctx, b.st.Storage(), "v")
	return v, err
}

func (b *bench) Fail(context.Context, struct{}) (struct{}, error) {
	return struct{}{}, fmt.Errorf("the bench is out of order")
}

func (b *bench) Panic(context.Context, struct{}) (struct{}, error) { panic("bug in bench") }

// Linger starts a task that runs until its incarnation ends.
func (b *bench) Linger(ctx context.Context, _ struct{}) (struct{}, error) {
	return struct{}{}, b.st.Go(ctx, "lingering", func(ctx context.Context) error { return dohost.Sleep(ctx, time.Hour) })
}

// Ignore starts a task that never returns.
func (b *bench) Ignore(ctx context.Context, _ struct{}) (struct{}, error) {
	return struct{}{}, b.st.Go(ctx, "ignoring", func(context.Context) error { select {} })
}

func (b *bench) Hold(_ context.Context, why string) (struct{}, error) {
	b.st.Pin(why)
	return struct{}{}, nil
}

// Break makes the file system refuse all later writes.
func (b *bench) Break(context.Context, struct{}) (struct{}, error) {
	return struct{}{}, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: 1})
}

func (b *bench) Alarm(ctx context.Context, info dohost.AlarmInfo) error {
	return dohost.Put(ctx, b.st.Storage(), "v", "rang")
}

func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s %s;", r.Method, r.URL.Path, body)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	if r.URL.Path == "/cut" {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(w, " the end")
}
