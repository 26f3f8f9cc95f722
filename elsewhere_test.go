package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/errkind"
)

// divided is an object that calls other objects of its class and has an alarm.
type divided struct {
	st        *dohost.State
	delivered chan<- string
}

const dividedObjects dohost.Namespace[divided] = "divided"

func dividedClass(delivered chan<- string) dohost.Class {
	return dohost.Bind(dividedObjects,
		func(_ context.Context, st *dohost.State) (*divided, error) { return &divided{st, delivered}, nil },
		&dohost.Handlers[divided]{
			OnAlarm: func(d *divided, _ context.Context, _ dohost.AlarmInfo) error {
				d.delivered <- d.st.ID().Name
				return nil
			},
			OnHTTP: func(d *divided, w http.ResponseWriter, r *http.Request) {
				if err := d.st.Delegate(w, r, dividedObjects.Get(d.st, r.URL.Path[1:]).ID()); err != nil {
					panic(err)
				}
			},
		},
		dohost.Expose("call", (*divided).call), dohost.Expose("write", (*divided).write))
}

func (d *divided) call(ctx context.Context, other string) (int, error) {
	return dohost.Call(ctx, dividedObjects.Get(d.st, other), (*divided).write, 1)
}

func (d *divided) write(ctx context.Context, n int) (int, error) {
	return n, dohost.Put(ctx, d.st.Storage(), "n", n)
}

func onlyHere(id dohost.ID) bool {
	if id.Name == "panics" {
		panic("in Holds")
	}
	return id.Name == "here"
}

// TestHostWakesNoObjectOfAnotherHost reaches an object of another host in each way, and finds nothing of it afterwards.
func TestHostWakesNoObjectOfAnotherHost(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Holds: onlyHere}, dividedClass(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx := t.Context()
	there := dividedObjects.Get(h, "there")
	if n, err := dohost.Call(ctx, dividedObjects.Get(h, "here"), (*divided).write, 7); err != nil || n != 7 {
		t.Fatalf("own object: %d, %v", n, err)
	}
	var export bytes.Buffer
	if err := h.Export(ctx, dohost.ID{Class: "divided", Name: "here"}, &export); err != nil {
		t.Fatal(err)
	}
	ways := map[string]func() error{
		"call": func() error { _, err := dohost.Call(ctx, there, (*divided).write, 1); return err },
		"Do":   func() error { return there.Do(ctx, func(context.Context, *divided) error { return nil }) },
		"call by an object": func() error {
			_, err := dohost.Call(ctx, dividedObjects.Get(h, "here"), (*divided).call, "there")
			return err
		},
		"exposed method": func() error { _, err := h.Invoke(ctx, there.ID(), "write", []byte("1")); return err },
		"alarm":          func() error { return h.SetAlarm(ctx, there.ID(), time.Now().Add(time.Hour)) },
		"revive":         func() error { _, err := h.ReviveAlarm(ctx, there.ID()); return err },
		"import":         func() error { return h.Import(ctx, there.ID(), bytes.NewReader(export.Bytes())) },
		"Holds panics": func() error {
			_, err := h.Invoke(ctx, dohost.ID{Class: "divided", Name: "panics"}, "write", []byte("1"))
			return err
		},
	}
	for way, reach := range ways {
		err := reach()
		if !errors.Is(err, errkind.ErrElsewhere) {
			t.Errorf("%s: %v", way, err)
		}
		if e, ok := errors.AsType[*dohost.Error](err); ok && way != "call by an object" && (e.Outcome != dohost.OutcomeNotRun || e.Retryable) {
			t.Errorf("%s: the outcome is %v, retryable %v", way, e.Outcome, e.Retryable)
		}
	}
	for path, want := range map[string]int{"/there": http.StatusMisdirectedRequest, "/": http.StatusMisdirectedRequest} {
		id := there.ID()
		if path == "/there" {
			id.Name = "here" // which delegates the request
		}
		w := httptest.NewRecorder()
		h.ServeObject(w, httptest.NewRequest(http.MethodGet, path, nil), id)
		if w.Code != want {
			t.Errorf("request for %v%s: %d %s", id, path, w.Code, w.Body)
		}
	}
	for id, err := range h.Objects(ctx, "divided", "") {
		if err != nil || id.Name != "here" {
			t.Errorf("the host has %v, %v", id, err)
		}
	}
	if h.IsLive(there.ID()) {
		t.Error("the object is in memory")
	}
}

// TestAlarmOfAnObjectOfAnotherHostStays opens a store that has an alarm of an object that the host does not hold, and again without that
// limit.
func TestAlarmOfAnObjectOfAnotherHostStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, delivered, reports := t.TempDir(), make(chan string, 1), atomic.Int64{}
		refused := func(a dohost.AlarmRun) {
			if errors.Is(a.Err, errkind.ErrElsewhere) {
				reports.Add(1)
			}
		}
		open := func(holds func(dohost.ID) bool) *dohost.Host {
			h, err := dohost.Open(dir, &dohost.Options{Holds: holds, Listener: dohost.Listener{AlarmEnded: refused}}, dividedClass(delivered))
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		h := open(nil)
		if err := h.SetAlarm(t.Context(), dohost.ID{Class: "divided", Name: "there"}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		h.Close()
		h = open(onlyHere)
		time.Sleep(time.Hour)
		h.Close()
		if len(delivered) != 0 || reports.Load() != 1 {
			t.Errorf("the alarm was delivered %d times, and reported %d times", len(delivered), reports.Load())
		}
		h = open(nil)
		time.Sleep(time.Second)
		h.Close()
		if len(delivered) != 1 {
			t.Error("the alarm is lost")
		}
	})
}
