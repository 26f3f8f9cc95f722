package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
)

// PullOptions are the options of [Subscription.Pull].
type PullOptions struct {
	// WakeStream is the path of the stream of wakes, of 1 to 1,024 bytes. Required.
	WakeStream string
	// Worker is the name that the server shows to others, of 1 to 256 bytes. Empty means "dohost".
	Worker string
	// OnError is called with each error, from one goroutine. Then Pull waits 1 s, doubled for each further error in succession, up to 30 s, and
	// tries again. It may be nil.
	OnError func(error)
}

const (
	// claimEach is the time after which a claim is tried without a wake, for a wake that was lost.
	claimEach = time.Minute
	// firstPause and maxPause bound the pause after an error.
	firstPause, maxPause = time.Second, 30 * time.Second
	// maxWakes bounds a response of the stream of wakes in bytes.
	maxWakes = 1 << 20
)

// Pull follows the stream of wakes of a pull-wake subscription, claims its wakes, and passes them to the subscription's worker, until ctx has
// ended. Several hosts may do so for one subscription: each wake is worked on by one of them. h must have the class of [Class].
//
// Errors: an error for options that are out of range; otherwise the context's cause. Pull passes the errors of the server and of the host to
// OnError.
func (s *Subscription) Pull(ctx context.Context, h *dohost.Host, o *PullOptions) error {
	if o == nil || o.WakeStream == "" || len(o.WakeStream) > maxPath || len(o.Worker) > maxID {
		return fmt.Errorf("consumer: Pull wants a WakeStream of 1 to %d bytes, and a Worker of at most %d", maxPath, maxID)
	}
	p := &puller{of: s, host: h, worker: o.Worker, stream: o.WakeStream}
	if p.worker == "" {
		p.worker = "dohost"
	}
	for failures := 0; ctx.Err() == nil; {
		err := p.step(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if o.OnError != nil {
			o.OnError(err)
		}
		_ = dohost.Sleep(ctx, backoff.Delay(failures, firstPause, maxPause)) // the loop ends with ctx
		failures++
	}
	return context.Cause(ctx)
}

// puller follows a stream of wakes.
type puller struct {
	of     *Subscription
	host   *dohost.Host
	worker string
	stream string
	offset string // of the next event; empty: not known
}

// step claims a wake, if there is one, and waits for the next event of the stream. The position in the stream precedes the claim, so no
// event is missed in between.
func (p *puller) step(ctx context.Context) error {
	if p.offset == "" {
		r, err := p.of.read(ctx, http.MethodHead, p.stream, "")
		if err != nil {
			return err
		}
		r.close()
		if p.offset = r.next; p.offset == "" {
			return fmt.Errorf("consumer: there is no stream of wakes %q", p.stream)
		}
	}
	if err := p.claim(ctx); err != nil {
		return err
	}
	for begin := time.Now(); time.Since(begin) < claimEach; {
		own, err := p.wait(ctx)
		if err != nil || own {
			return err
		}
	}
	return nil
}

// claim claims the subscription's wake, if there is one, and stores it.
func (p *puller) claim(ctx context.Context) error {
	var b wakeBody
	err := p.of.control(ctx, http.MethodPost, p.of.controlURL("claim"), "", map[string]string{"worker": p.worker}, &b)
	if e, ok := errors.AsType[*serverError](err); ok && (e.code == "NO_PENDING_WORK" || e.code == "ALREADY_CLAIMED") {
		return nil
	}
	if err != nil {
		return err
	}
	w, err := p.of.wakeOf(&b)
	if err != nil {
		return fmt.Errorf("consumer: the response to a claim: %w", err)
	}
	w.Pull = true
	if lease := time.Duration(b.LeaseMillis) * time.Millisecond; lease >= time.Second && lease <= 10*time.Minute {
		w.Lease = lease
	}
	return p.of.store(ctx, p.host, w)
}

// wait waits for the next response of the stream of wakes, and reports whether it is time to claim: there is an event of the subscription, or
// none has come for long.
func (p *puller) wait(ctx context.Context) (own bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, claimEach, errLongWait)
	defer cancel()
	begin := time.Now()
	to := p.of.streamURL(p.stream) + "?" + url.Values{"offset": {p.offset}, "live": {"long-poll"}}.Encode()
	w, err := p.of.request(ctx, http.MethodGet, to, "", nil)
	if err != nil {
		if errors.Is(context.Cause(ctx), errLongWait) {
			return true, nil
		}
		return false, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(io.LimitReader(w.Body, maxWakes+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("consumer: the stream of wakes: %w", err)
	case w.StatusCode == http.StatusNoContent && w.Header.Get("Stream-Next-Offset") != "":
		return false, p.advance(ctx, w, begin)
	case w.StatusCode != http.StatusOK || w.Header.Get("Stream-Next-Offset") == "" || len(text) > maxWakes:
		p.offset = "" // the stream may have been deleted, and created again
		return false, errorOf(w.StatusCode, text)
	}
	if err := p.advance(ctx, w, begin); err != nil {
		return false, err
	}
	var events []struct {
		Subscription string `json:"subscription_id"`
	}
	if err := json.Unmarshal(text, &events); err != nil {
		return false, fmt.Errorf("consumer: the stream of wakes: %w", err)
	}
	for _, e := range events {
		own = own || e.Subscription == p.of.ID
	}
	return own, nil
}

// advance moves to the end of a response. A response without events that comes immediately is followed by a pause: the server, or a proxy,
// does not wait for events.
func (p *puller) advance(ctx context.Context, w *http.Response, begin time.Time) error {
	before := p.offset
	if p.offset = w.Header.Get("Stream-Next-Offset"); len(p.offset) > maxOffset {
		p.offset = ""
		return fmt.Errorf("consumer: the stream of wakes has an offset of more than %d bytes", maxOffset)
	}
	switch {
	case w.Header.Get("Stream-Closed") == "true" && (p.offset == before || w.StatusCode == http.StatusNoContent):
		p.offset = "" // it may be deleted, and created again
		return fmt.Errorf("consumer: the stream of wakes %q is closed", p.stream)
	case p.offset == before && time.Since(begin) < firstPause:
		return dohost.Sleep(ctx, firstPause-time.Since(begin))
	}
	return nil
}

var errLongWait = errors.New("consumer: no wake for long")
