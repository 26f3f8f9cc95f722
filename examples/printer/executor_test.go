package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeServer answers the requests of an executor.
type fakeServer func(*http.Request) (*http.Response, error)

func (f fakeServer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Body: io.NopCloser(strings.NewReader(body))}, nil
}

// oneJob is a stream with a job.
const oneJob = "event: enter\ndata: {\"value\":{\"id\":\"j\",\"text\":\"a card\"}}\n\n"

// runExecutor runs an executor in virtual time until the first report, or until it ends by itself. It returns the lines of the executor,
// and the time that has passed.
func runExecutor(t *testing.T, delay time.Duration, server fakeServer) (lines []string, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b, failed := openBook(filepath.Join(t.TempDir(), "book"))
		if failed != nil {
			t.Fatal(failed)
		}
		defer b.close()
		out, begun := &strings.Builder{}, time.Now()
		e := &executor{desk: "http://host/agents/desk/front", calls: "http://host/objects/desk/front", token: "secret", book: b, delay: delay, out: out}
		e.client = &http.Client{Transport: fakeServer(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return answer(http.StatusUnauthorized, "no token")
			}
			if r.Method == http.MethodPost {
				cancel()
				return answer(http.StatusOK, "{}")
			}
			return server(r)
		})}
		err = e.run(ctx)
		lines, took = strings.Split(strings.TrimSpace(out.String()), "\n"), time.Since(begun)
	})
	return lines, took, err
}

// TestExecutorWaitsForTheServer starts an executor an hour before the server: it asks every few seconds, and has one line about it.
func TestExecutorWaitsForTheServer(t *testing.T) {
	attempts := 0
	lines, took, err := runExecutor(t, 0, func(*http.Request) (*http.Response, error) {
		if attempts++; attempts < 720 {
			return nil, errors.New("connection refused")
		}
		return answer(http.StatusOK, oneJob)
	})
	if err != nil || took < 50*time.Minute || took > 70*time.Minute {
		t.Errorf("%d attempts took %v: %v", attempts, took, err)
	}
	if len(lines) != 2 || !strings.Contains(lines[0], "connection refused") {
		t.Errorf("%q", lines)
	}
}

// TestExecutorEndsWhenItIsRefused has a server that refuses the executor, and one that asks for another attempt.
func TestExecutorEndsWhenItIsRefused(t *testing.T) {
	for status, ends := range map[int]bool{401: true, 403: true, 404: true, 429: false, 500: false, 503: false} {
		attempts := 0
		_, _, err := runExecutor(t, 0, func(*http.Request) (*http.Response, error) {
			if attempts++; attempts == 1 {
				return answer(status, "no")
			}
			return answer(http.StatusOK, oneJob)
		})
		if ended := err != nil; ended != ends || ended && (attempts != 1 || !strings.Contains(err.Error(), fmt.Sprint(status))) {
			t.Errorf("after %d the executor has ended with %v, after %d attempts", status, err, attempts)
		}
	}
}

// TestExecutorNoticesSilence has a connection whose other side is gone, and another one that is idle: the server sends comments.
func TestExecutorNoticesSilence(t *testing.T) {
	for heartbeats, want := range map[int]time.Duration{0: silence, 10: 10*15*time.Second + silence} {
		attempts := 0
		_, took, err := runExecutor(t, 0, func(r *http.Request) (*http.Response, error) {
			if attempts++; attempts > 1 {
				return answer(http.StatusOK, oneJob)
			}
			in, out := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
			go func() {
				for range heartbeats {
					time.Sleep(15 * time.Second)
					_, _ = io.WriteString(out, ": idle\n\n")
				}
			}()
			res, _ := answer(http.StatusOK, "")
			res.Body = in
			return res, nil
		})
		if err != nil || took < want || took > want+time.Second {
			t.Errorf("with %d heartbeats the executor has connected again after %v: %v", heartbeats, took, err)
		}
	}
}

// TestExecutorMayBeSlow has a print that takes longer than the server may be silent.
func TestExecutorMayBeSlow(t *testing.T) {
	attempts := 0
	_, took, err := runExecutor(t, 10*time.Minute, func(*http.Request) (*http.Response, error) {
		attempts++
		return answer(http.StatusOK, oneJob)
	})
	if err != nil || attempts != 1 || took != 10*time.Minute {
		t.Errorf("%d attempts took %v: %v", attempts, took, err)
	}
}

// TestBookHasOneExecutor opens a book twice.
func TestBookHasOneExecutor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	b, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openBook(path); err == nil || !strings.Contains(err.Error(), "another executor has the book") {
		t.Errorf("the second executor has the error %v", err)
	}
	b.close()
	if b, err = openBook(path); err != nil {
		t.Fatal(err)
	}
	b.close()
}

// TestBookAfterCutLine ends a process in the middle of a line: the job of the line is printed again.
func TestBookAfterCutLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	line := `{"id":"a","text":"one"}` + "\n"
	for cut := range len(line) {
		if err := os.WriteFile(path, []byte(line+line[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := openBook(path)
		if err != nil {
			t.Fatalf("after %d bytes: %v", cut, err)
		}
		first, err1 := b.print(Job{ID: "a", Text: "one"})
		second, err2 := b.print(Job{ID: "b", Text: "two"})
		b.close()
		again, err3 := openBook(path)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatalf("after %d bytes: %v", cut, err)
		}
		if first != 1 || second != 2 || len(again.pages) != 2 || again.pages["b"] != 2 {
			t.Errorf("after %d bytes: pages %d and %d, and then %v", cut, first, second, again.pages)
		}
		again.close()
	}
}
