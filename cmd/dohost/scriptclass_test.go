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

// scriptObject is an object with a handler of each kind, for scripts.
type scriptObject struct{ st *dohost.State }

const scriptObjects dohost.Namespace[scriptObject] = "bench"

func scriptClass() dohost.Class {
	return dohost.Bind(scriptObjects, func(_ context.Context, st *dohost.State) (*scriptObject, error) { return &scriptObject{st}, nil },
		&dohost.Handlers[scriptObject]{OnAlarm: (*scriptObject).Alarm, OnHTTP: (*scriptObject).ServeHTTP},
		dohost.Expose("put", dohost.NoResult((*scriptObject).Put)), dohost.Expose("get", dohost.NoArg((*scriptObject).Get)), dohost.Expose("fail", dohost.Bare((*scriptObject).Fail)),
		dohost.Expose("panic", dohost.Bare((*scriptObject).Panic)), dohost.Expose("linger", dohost.Bare((*scriptObject).Linger)), dohost.Expose("ignore", dohost.Bare((*scriptObject).Ignore)),
		dohost.Expose("hold", dohost.NoResult((*scriptObject).Hold)), dohost.Expose("break", dohost.Bare((*scriptObject).Break)))
}

func (b *scriptObject) Put(ctx context.Context, v string) error {
	return dohost.Put(ctx, b.st.Storage(), "v", v)
}

func (b *scriptObject) Get(ctx context.Context) (string, error) {
	v, _, err := dohost.Get[string](ctx, b.st.Storage(), "v")
	return v, err
}

func (b *scriptObject) Fail(context.Context) error {
	return fmt.Errorf("the bench is out of order")
}

func (b *scriptObject) Panic(context.Context) error { panic("bug in bench") }

// Linger starts a task that runs until its incarnation ends.
func (b *scriptObject) Linger(ctx context.Context) error {
	return b.st.Go(ctx, "lingering", func(ctx context.Context) error { return dohost.Sleep(ctx, time.Hour) })
}

// Ignore starts a task that never returns.
func (b *scriptObject) Ignore(ctx context.Context) error {
	return b.st.Go(ctx, "ignoring", func(context.Context) error { select {} })
}

func (b *scriptObject) Hold(_ context.Context, why string) error {
	b.st.Pin(why)
	return nil
}

// Break makes the file system refuse all later writes.
func (b *scriptObject) Break(context.Context) error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: 1})
}

func (b *scriptObject) Alarm(ctx context.Context, info dohost.AlarmInfo) error {
	return dohost.Put(ctx, b.st.Storage(), "v", "delivered")
}

func (b *scriptObject) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
