package consumer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// ClassName is the class of the workers of subscriptions.
const ClassName = "streamworker"

// Subscription describes a subscription of a server, and the objects that take its messages. It must not change after the call of [Class].
type Subscription struct {
	// Server is the URL of the server's root of streams: "https://streams.example/v1/stream". Required. All requests go to URLs below it, so
	// a wake cannot name other ones.
	Server string
	// ID is the ID of the subscription, of 1 to 256 bytes. It is also the name of its worker. Required.
	ID string
	// Targets are the classes that take the messages. The first one that has a name for the path of a stream takes the messages of the stream.
	// A stream without a target fails each drain. Required.
	Targets []Target
	// Header is added to all requests, for the authorization of the server. It must not change. Requests follow no redirects, so no other host
	// gets it.
	Header http.Header
	// Transport sends the requests. It must be safe for concurrent use. Nil means a clone of [http.DefaultTransport].
	Transport http.RoundTripper
	// Lease is the lease of the subscription's wakes: heartbeats leave each third of it. It must be the lease that the subscription has at the
	// server; [Subscription.Create] sends it. Zero means 30 s, as in the protocol; otherwise 1 s to 10 min.
	Lease time.Duration
	// Timeout bounds the wait for the server: for the response to a request, and for the next bytes of a long one. Zero means 30 s.
	Timeout time.Duration
	// MaxMessage bounds a message of a JSON stream in bytes. A larger one fails each drain of its stream. Zero means 1 MiB; at most 8 MiB.
	MaxMessage int

	once   sync.Once // makes the fields below
	client *http.Client
	keys   keySet
}

const (
	// maxID bounds the ID of a subscription, and maxPath the path of a stream, in bytes.
	maxID, maxPath = 256, 1024
	// maxMessageLimit bounds Subscription.MaxMessage.
	maxMessageLimit = 8 << 20
)

// Class returns the class of the workers of subscriptions. Clients cannot reach them. Errors of a subscription are errors of
// [dohost.Open].
func Class(subscriptions ...*Subscription) dohost.Class {
	of := map[string]*Subscription{}
	var mistakes []error
	for _, s := range subscriptions {
		switch err := s.check(); {
		case err != nil:
			mistakes = append(mistakes, err)
		case of[s.ID] != nil:
			mistakes = append(mistakes, fmt.Errorf("consumer: two subscriptions %q", s.ID))
		default:
			of[s.ID] = s
		}
	}
	c := agent.Bind(workers,
		func(_ context.Context, a *agent.Agent[struct{}]) (*worker, error) {
			return &worker{Agent: a, of: of[a.Name()]}, nil
		},
		&agent.Handlers[worker, struct{}]{
			Authorize: func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
				return dohost.Access{}, dohost.ErrForbidden
			},
		},
		agent.OnRows(&wakes, "work", (*worker).work, &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: time.Minute}}))
	if len(mistakes) > 0 {
		return dohost.InvalidClass(c, mistakes...)
	}
	return c
}

// check returns the error in a subscription.
func (s *Subscription) check() error {
	if s == nil {
		return errors.New("consumer: a nil subscription")
	}
	u, err := url.Parse(s.Server)
	switch {
	case s.ID == "" || len(s.ID) > maxID:
		return fmt.Errorf("consumer: the ID of a subscription has %d bytes: want 1 to %d", len(s.ID), maxID)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("consumer: subscription %q: the URL of the server is %q: want http or https, a host and a path", s.ID, s.Server)
	case len(s.Targets) == 0:
		return fmt.Errorf("consumer: subscription %q without a target", s.ID)
	case s.MaxMessage < 0 || s.MaxMessage > maxMessageLimit:
		return fmt.Errorf("consumer: subscription %q: MaxMessage is %d: want 1 to %d", s.ID, s.MaxMessage, maxMessageLimit)
	case s.Lease != 0 && (s.Lease < time.Second || s.Lease > 10*time.Minute):
		return fmt.Errorf("consumer: subscription %q: Lease is %v: want 1s to 10m0s", s.ID, s.Lease)
	case s.Timeout < 0:
		return fmt.Errorf("consumer: subscription %q: Timeout is %v", s.ID, s.Timeout)
	}
	for i, t := range s.Targets {
		if t.name == nil {
			return fmt.Errorf("consumer: subscription %q: target %d is not one of To, or has no functions", s.ID, i)
		}
	}
	return nil
}

// targetOf returns the target of a stream, and the name of its object.
func (s *Subscription) targetOf(path string) (*Target, string, error) {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." { // a request for it could leave the root of streams
			return nil, "", fmt.Errorf("consumer: the path has a segment %q", segment)
		}
	}
	for i := range s.Targets {
		name, err := s.Targets[i].nameOf(path)
		if err != nil || name != "" {
			return &s.Targets[i], name, err
		}
	}
	return nil, "", fmt.Errorf("consumer: no target has a name for the stream %q", path)
}

func (s *Subscription) lease() time.Duration {
	if s.Lease == 0 {
		return 30 * time.Second
	}
	return s.Lease
}

func (s *Subscription) timeout() time.Duration {
	if s.Timeout == 0 {
		return 30 * time.Second
	}
	return s.Timeout
}

func (s *Subscription) maxMessage() int64 {
	if s.MaxMessage == 0 {
		return 1 << 20
	}
	return int64(s.MaxMessage)
}

// httpClient returns the client of all requests.
func (s *Subscription) httpClient() *http.Client {
	s.once.Do(func() {
		t := s.Transport
		if t == nil {
			t = http.DefaultTransport.(*http.Transport).Clone()
		}
		s.keys.fetching = make(chan struct{}, 1)
		s.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	})
	return s.client
}
