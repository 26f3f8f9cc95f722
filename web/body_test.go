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

// dripping is a body with one byte every few seconds, and a response with the deadlines of its reads.
type dripping struct {
	http.ResponseWriter
	every    time.Duration
	size     int
	deadline time.Time
}

func (d *dripping) SetReadDeadline(at time.Time) error {
	d.deadline = at
	return nil
}

func (d *dripping) Close() error { return nil }

func (d *dripping) Read(p []byte) (int, error) {
	if at := time.Now().Add(d.every); !d.deadline.IsZero() && at.After(d.deadline) {
		time.Sleep(time.Until(d.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(d.every)
	return min(d.size, len(p)), nil
}

func TestBodyThatDripsEnds(t *testing.T) {
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
			d := &dripping{ResponseWriter: httptest.NewRecorder(), every: tt.every, size: tt.size}
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
			if !errors.Is(err, os.ErrDeadlineExceeded) || took != tt.want {
				t.Errorf("%+v: %v after %v", tt, err, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := &dripping{ResponseWriter: httptest.NewRecorder(), every: 5 * time.Second, size: 1}
		b := &boundedBody{ReadCloser: d, rc: http.NewResponseController(d), step: 30 * time.Second, total: -1}
		if _, err := io.CopyN(io.Discard, b, 1000); err != nil {
			t.Errorf("without a bound: %v", err)
		}
	})
}
