package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// outage sends requests, and reports on a terminal when the host has stopped answering them, and when it answers again: the callers repeat their
// requests silently. It reports the second consecutive failure, since the first may be an idle connection that a restart of the host has
// closed. It reports at most one outage in outagePause.
type outage struct {
	base http.RoundTripper
	out  io.Writer
	at   string // the address, for people

	mu       sync.Mutex // guards the fields below
	failures int        // consecutive ones
	reported bool       // the present outage
	last     time.Time  // of the last reported outage
}

// outagePause is the least time between two reports of outages.
const outagePause = time.Minute

// newOutage returns a client that reports outages to out.
func newOutage(out io.Writer, at string) *http.Client {
	return &http.Client{Transport: &outage{base: http.DefaultTransport, out: out, at: at}}
}

// RoundTrip sends a request. A response with a status of 500 or more is a failure as well.
func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := o.base.RoundTrip(r)
	switch {
	case err != nil && errors.Is(context.Cause(r.Context()), context.Canceled): // by the caller
	case errors.Is(err, context.DeadlineExceeded):
		o.failed(errors.New("no answer in time"))
	case err != nil:
		o.failed(err)
	case res.StatusCode >= http.StatusInternalServerError:
		o.failed(fmt.Errorf("it answers %s", res.Status))
	default:
		o.answered()
	}
	return res, err
}

func (o *outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	if o.failures < 2 || o.reported || !o.last.IsZero() && time.Since(o.last) < outagePause {
		return
	}
	o.reported, o.last = true, time.Now()
	fmt.Fprintf(o.out, "dohost: no host answers at %s: %s; trying again\n", printable(o.at), printable(err.Error()))
}

func (o *outage) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reported {
		fmt.Fprintf(o.out, "dohost: the host at %s answers again\n", printable(o.at))
	}
	o.failures, o.reported = 0, false
}
