package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// WebhookOptions tunes [Subscription.Webhook]. Nil means the defaults.
type WebhookOptions struct {
	// Within keeps the request of the server open until the wake has ended, or until this time has passed: the response has the status 200 if
	// it has ended, and otherwise 202, and the work continues with heartbeats. Zero answers as soon as the wake is stored, with the status
	// 202. A server may bound the time of its requests.
	Within time.Duration
}

const (
	// maxDelivery bounds the body of a delivery in bytes, and maxDeliveries the deliveries whose bodies are read or verified at a time.
	maxDelivery, maxDeliveries = 4 << 20, 64
	// deliveryTimeout bounds the time of reading the body.
	deliveryTimeout = 30 * time.Second
	// checkEach is the time between two checks whether a wake has ended.
	checkEach = 100 * time.Millisecond
)

// Webhook returns the handler for the deliveries of the subscription. The server must have its URL: see Config.WebhookURL.
// The handler accepts a delivery only with a valid field Webhook-Signature, with a time that is at most 5 min from its own clock. It verifies
// the signature before it decodes the body, and reads no body of a request with a malformed field, an unknown key or another time.
//
// The responses: 202 when the wake is stored durably, or 200 (see WebhookOptions.Within); 400 for a body that is no wake; 401 without a valid
// signature; 405 for another method than POST; 409 for a wake that the server has replaced; 413 for a body of more than 4 MiB; 503 if the host is
// overloaded, the server's keys cannot be fetched, or the handler reads 64 other deliveries; otherwise the status of [dohost.DescribeError]. The
// server repeats a delivery after an error. The handler may be called concurrently. h must have the class of [Class].
func (s *Subscription) Webhook(h *dohost.Host, o *WebhookOptions) http.Handler {
	if o == nil {
		o = &WebhookOptions{}
	}
	hook := &webhook{of: s, host: h, o: *o, busy: make(chan struct{}, maxDeliveries)}
	return http.HandlerFunc(hook.serve)
}

// webhook is the handler of deliveries.
type webhook struct {
	of   *Subscription
	host *dohost.Host
	o    WebhookOptions
	busy chan struct{}
}

func (k *webhook) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}
	accepted, status, err := k.receive(w, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	if k.o.Within > 0 && k.ended(r.Context(), accepted) {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// receive reads and stores a delivery. The status is an error status.
func (k *webhook) receive(w http.ResponseWriter, r *http.Request) (*wake, int, error) {
	select {
	case k.busy <- struct{}{}:
		defer func() { <-k.busy }()
	default:
		w.Header().Set("Retry-After", "1")
		return nil, http.StatusServiceUnavailable, errors.New("too many deliveries at a time")
	}
	setDeadline := func() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(deliveryTimeout)) // a writer without deadlines has its own
	}
	setDeadline() // net/http reads a part of a body that the handler has not read
	// The host does not hold the body of a sender that has no key of the server.
	signed, err := k.of.signature(r.Context(), r.Header.Get("Webhook-Signature"))
	switch {
	case errors.Is(err, errSignature):
		return nil, http.StatusUnauthorized, err
	case err != nil:
		return nil, http.StatusServiceUnavailable, errors.New("the keys of the server cannot be fetched")
	}
	setDeadline() // the keys may have been fetched
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("a delivery has at most %d bytes", maxDelivery)
	} else if err != nil {
		return nil, http.StatusBadRequest, err
	}
	if !signed.of(body) {
		return nil, http.StatusUnauthorized, errSignature
	}
	accepted, err := k.of.parse(body)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	switch err := k.of.store(r.Context(), k.host, accepted); {
	case errors.Is(err, agent.ErrWakeStale):
		return nil, http.StatusConflict, errors.New("the wake is stale")
	case err != nil:
		b, status := dohost.DescribeError(err)
		return nil, status, errors.New(b.Message)
	}
	return accepted, 0, nil
}

// streamInfo is a stream in a wake, as the server sends it.
type streamInfo struct {
	Path    string `json:"path"`
	Acked   string `json:"acked_offset"`
	Tail    string `json:"tail_offset"`
	Pending bool   `json:"has_pending"`
}

// wakeBody is a delivery, or the response to a claim.
type wakeBody struct {
	Subscription  string       `json:"subscription_id"`
	Wake          string       `json:"wake_id"`
	Generation    uint64       `json:"generation"`
	Streams       []streamInfo `json:"streams"`
	CallbackToken string       `json:"callback_token"`
	Token         string       `json:"token"`
	LeaseMillis   int64        `json:"lease_ttl_ms"`
}

// parse returns the wake of a delivery.
func (s *Subscription) parse(body []byte) (*wake, error) {
	var b wakeBody
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	if b.Subscription != s.ID {
		return nil, fmt.Errorf("the delivery is one of the subscription %.100q: want %q", b.Subscription, s.ID)
	}
	b.Token = b.CallbackToken
	return s.wakeOf(&b)
}

// wakeOf returns the wake of a delivery or of a claim.
func (s *Subscription) wakeOf(b *wakeBody) (*wake, error) {
	const maxText = 1024 // of a wake's ID and of its token
	if b.Wake == "" || len(b.Wake) > maxText || b.Token == "" || len(b.Token) > maxText {
		return nil, fmt.Errorf("a wake has an ID and a token of 1 to %d bytes", maxText)
	}
	w := &wake{Wake: b.Wake, Generation: b.Generation, Token: b.Token, Lease: s.lease()}
	size := 0
	for _, stream := range b.Streams {
		tail := streamTail{stream.Path, stream.Acked, stream.Tail}
		switch {
		case !stream.Pending:
			continue
		case stream.Path == "" || len(stream.Path) > maxPath || len(stream.Acked) > maxOffset || len(stream.Tail) > maxOffset:
			w.Refused++ // the other streams must not wait for it
			continue
		case len(w.Streams) == maxStreams || size+tail.size() > maxStreamBytes:
			continue
		}
		size += tail.size()
		w.Streams = append(w.Streams, tail)
	}
	return w, nil
}

// store stores a wake with the worker of the subscription.
func (s *Subscription) store(ctx context.Context, h dohost.Locator, w *wake) error {
	r := acceptRequest{Wake: *w}
	unsure, err := callObject(ctx, workers.Get(h, s.ID), (*worker).accept, r)
	if err != nil || !unsure {
		return err
	}
	if err := s.ack(ctx, w, nil, false); err != nil {
		return err
	}
	r.Sure = true
	_, err = callObject(ctx, workers.Get(h, s.ID), (*worker).accept, r)
	return err
}

// ended waits until a wake has ended, and reports whether it has ended within the time limit.
func (k *webhook) ended(ctx context.Context, w *wake) bool {
	ctx, cancel := context.WithTimeout(ctx, k.o.Within)
	defer cancel()
	for {
		waiting, err := callObject(ctx, workers.Get(k.host, k.of.ID), (*worker).waiting, w.Wake)
		if err != nil || !waiting {
			return err == nil
		}
		if dohost.Sleep(ctx, checkEach) != nil {
			return false
		}
	}
}
