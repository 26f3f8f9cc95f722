package web

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowBody is a body with a few bytes every few seconds, and a response with the deadlines of its reads.
type slowBody struct {
	http.ResponseWriter
	fast     int // reads that first return 64 KiB each without a wait
	every    time.Duration
	size     int
	deadline time.Time
}

func (d *slowBody) SetReadDeadline(at time.Time) error {
	d.deadline = at
	return nil
}

func (d *slowBody) Close() error { return nil }

func (d *slowBody) Read(p []byte) (int, error) {
	if d.fast > 0 {
		d.fast--
		return len(p), nil
	}
	if at := time.Now().Add(d.every); !d.deadline.IsZero() && at.After(d.deadline) {
		time.Sleep(time.Until(d.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(d.every)
	return min(d.size, len(p)), nil
}

func TestBodyWithSlowDripTimesOut(t *testing.T) {
	for _, tt := range []struct {
		every       time.Duration
		size        int
		step, total time.Duration
		pause, want time.Duration
	}{
		{5 * time.Second, 1, 30 * time.Second, time.Minute, 0, time.Minute},
		{40 * time.Second, 1, 30 * time.Second, time.Minute, 0, 30 * time.Second},
		{5 * time.Second, 1, -1, time.Minute, 0, time.Minute},
		{5 * time.Second, 1, 30 * time.Second, time.Minute, 10 * time.Minute, time.Minute},
		{5 * time.Second, 32 << 10, 30 * time.Second, time.Minute, 0, 98 * time.Second}, // 32 KiB are two seconds more
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &slowBody{ResponseWriter: httptest.NewRecorder(), every: tt.every, size: tt.size}
			b := &boundedBody{ReadCloser: d, rc: http.NewResponseController(d), step: tt.step, total: tt.total}
			begun, reads := time.Now(), 0
			var err error
			for ; err == nil && reads < 1000; reads++ {
				_, err = b.Read(make([]byte, 64<<10))
				if err == nil && tt.pause > 0 {
					time.Sleep(tt.pause) // the handler does something else
				}
			}
			took := time.Since(begun) - time.Duration(reads-1)*tt.pause
			if !errors.Is(err, os.ErrDeadlineExceeded) || took.Truncate(time.Second) != tt.want { // each byte earns 61 µs
				t.Errorf("%+v: %v after %v", tt, err, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := &slowBody{ResponseWriter: httptest.NewRecorder(), every: 5 * time.Second, size: 1}
		b := &boundedBody{ReadCloser: d, rc: http.NewResponseController(d), step: 30 * time.Second, total: -1}
		if _, err := io.CopyN(io.Discard, b, 1000); err != nil {
			t.Errorf("without a bound: %v", err)
		}
	})
}

// TestBodyDeadlineIsNotExtendedByFastStart sends nearly 16 MiB without a wait, and then one byte every few seconds.
func TestBodyDeadlineIsNotExtendedByFastStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowBody{ResponseWriter: httptest.NewRecorder(), fast: 255, every: 5 * time.Second, size: 1}
		b := &boundedBody{ReadCloser: d, rc: http.NewResponseController(d), step: 30 * time.Second, total: time.Minute}
		begun := time.Now()
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(b, 16<<20), make([]byte, 64<<10))
		if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took.Truncate(time.Second) != time.Minute {
			t.Errorf("%v after %v, want a deadline after a minute", err, took)
		}
	})
}

// TestBodyOfSlowLinkIsReadWhole has 16 KiB/s, in parts of several sizes, and a handler that pauses.
func TestBodyOfSlowLinkIsReadWhole(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration
		size  int
	}{{time.Second, 16 << 10}, {time.Second / 16, 1 << 10}, {4 * time.Second, 64 << 10}} {
		synctest.Test(t, func(t *testing.T) {
			d := &slowBody{ResponseWriter: httptest.NewRecorder(), every: tt.every, size: tt.size}
			b := &boundedBody{ReadCloser: d, rc: http.NewResponseController(d), step: 30 * time.Second, total: time.Minute}
			buf := make([]byte, 64<<10)
			for sent := 0; sent < 16<<20; {
				n, err := b.Read(buf)
				if err != nil {
					t.Fatalf("%+v: %v after %d bytes", tt, err, sent)
				}
				if sent += n; sent == 4<<20 {
					time.Sleep(time.Hour) // the handler does something else
				}
			}
		})
	}
}
