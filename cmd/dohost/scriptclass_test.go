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
		&dohost.Handlers[bench]{OnAlarm: (*bench).Alarm, OnHTTP: (*bench).ServeHTTP},
		dohost.Expose("put", dohost.NoResult((*bench).Put)), dohost.Expose("get", dohost.NoArg((*bench).Get)), dohost.Expose("fail", dohost.Bare((*bench).Fail)),
		dohost.Expose("panic", dohost.Bare((*bench).Panic)), dohost.Expose("linger", dohost.Bare((*bench).Linger)), dohost.Expose("ignore", dohost.Bare((*bench).Ignore)),
		dohost.Expose("hold", dohost.NoResult((*bench).Hold)), dohost.Expose("break", dohost.Bare((*bench).Break)))
}

func (b *bench) Put(ctx context.Context, v string) error {
	return dohost.Put(ctx, b.st.Storage(), "v", v)
}

func (b *bench) Get(ctx context.Context) (string, error) {
	v, _, err := dohost.Get[string](ctx, b.st.Storage(), "v")
	return v, err
}

func (b *bench) Fail(context.Context) error {
	return fmt.Errorf("the bench is out of order")
}

func (b *bench) Panic(context.Context) error { panic("bug in bench") }

// Linger starts a task that runs until its incarnation ends.
func (b *bench) Linger(ctx context.Context) error {
	return b.st.Go(ctx, "lingering", func(ctx context.Context) error { return dohost.Sleep(ctx, time.Hour) })
}

// Ignore starts a task that never returns.
func (b *bench) Ignore(ctx context.Context) error {
	return b.st.Go(ctx, "ignoring", func(context.Context) error { select {} })
}

func (b *bench) Hold(_ context.Context, why string) error {
	b.st.Pin(why)
	return nil
}

// Break makes the file system refuse all later writes.
func (b *bench) Break(context.Context) error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: 1})
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
