package streams

import (
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/dohosttest"
)

// slowUpload is a body of size bytes, a few at a time, and a response with the deadline of its reads.
type slowUpload struct {
	*httptest.ResponseRecorder
	size, each int
	every      time.Duration
	deadline   time.Time
}

func (u *slowUpload) SetReadDeadline(at time.Time) error {
	u.deadline = at
	return nil
}

// Read returns the next bytes after a time, or the error of the deadline.
func (u *slowUpload) Read(p []byte) (int, error) {
	if at := time.Now().Add(u.every); !u.deadline.IsZero() && at.After(u.deadline) {
		time.Sleep(time.Until(u.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	if u.size == 0 {
		return 0, io.EOF
	}
	time.Sleep(u.every)
	n := min(len(p), u.each, u.size)
	u.size -= n
	return copy(p, strings.Repeat("x", n)), nil
}

// TestBodiesThatAreSlowEnd has clients that send nothing, a few bytes every few seconds, and slowly but not too slowly.
func TestBodiesThatAreSlowEnd(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", "", plain)
		for _, tt := range []struct {
			what  string
			each  int
			every time.Duration
			want  int
			most  time.Duration
		}{
			{"stalled", 1, time.Hour, 408, 30 * time.Second},
			{"trickle", 100, time.Second, 408, 31 * time.Second},
			{"slow", 32 << 10, time.Second, 204, 200 * time.Second},
		} {
			const size = 1 << 20
			u := &slowUpload{ResponseRecorder: httptest.NewRecorder(), size: size, each: tt.each, every: tt.every}
			r := httptest.NewRequest("POST", "/v1/stream/a", u)
			r.ContentLength = size
			r.Header.Set("Content-Type", "text/plain")
			begun := time.Now()
			s.ServeHTTP(u, r)
			if took := time.Since(begun); u.Code != tt.want || took > tt.most {
				t.Errorf("%s: status %d after %v, want %d within %v", tt.what, u.Code, took, tt.want, tt.most)
			}
			if tt.want == 204 && !u.deadline.IsZero() {
				t.Errorf("%s: the connection keeps the deadline of the body", tt.what)
			}
			if b := h.Host().ReadBudget(); b.Used != 0 {
				t.Errorf("%s: the request holds %+v", tt.what, b)
			}
		}
	})
}
