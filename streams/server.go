package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

// ServerOptions tunes a Server. A nil *ServerOptions, and the zero ServerOptions, mean the defaults.
type ServerOptions struct {
	// Prefix is the beginning of the paths of streams, with or without a slash at each end. Empty means "/v1/stream/".
	Prefix string
	// URL is the URL of the prefix for the workers of webhooks, as "https://example.com/v1/stream/". Empty means the scheme and the host of the
	// request that creates the subscription, and Prefix.
	URL string
	// MaxBody bounds the body of a request in bytes. Zero means 8 MiB, and so does more.
	MaxBody int64
	// LongPoll is how long a long poll waits. Zero means 20 s.
	LongPoll time.Duration
	// EventStream is how long a response of server-sent events lasts. Zero means 60 s, as the protocol recommends: the client connects again.
	EventStream time.Duration
	// MaxWaiting bounds the live readers, of all streams. The status beyond it is 429. Zero means 10,000.
	MaxWaiting int
	// StepTimeout bounds each write of a response to a client, of at most 64 KiB, and the time that all reads of a request's body wait
	// for the client; each 16 KiB give a second of it back. Zero means 30 s.
	StepTimeout time.Duration
	// Public lets shared caches keep responses with data for a minute, which makes sense if every client may read every stream. The
	// caches of clients may always keep them.
	Public bool
	// CORS lets pages of all origins use the streams.
	CORS bool
	// Origins are other origins whose pages may write, as "https://example.com". Without CORS, requests by browsers for pages of another
	// origin can only read, and get no response that the page can read. A text that is no origin has no effect.
	Origins []string
}

const (
	// maxBody bounds the body of a request: the writes of an event have at most 16 MiB.
	maxBody = 8 << 20
	// callTimeout bounds a call of a stream's object, its waiting included.
	callTimeout = time.Minute
	// heartbeat is the time without data after which a response of server-sent events contains a comment.
	heartbeat = 15 * time.Second
)

func (o *ServerOptions) withDefaults() ServerOptions {
	var d ServerOptions
	if o != nil {
		d = *o
	}
	setDefault(&d.Prefix, "/v1/stream/")
	if d.Prefix = strings.Trim(d.Prefix, "/") + "/"; d.Prefix != "/" {
		d.Prefix = "/" + d.Prefix
	}
	setDefault(&d.LongPoll, 20*time.Second)
	setDefault(&d.EventStream, time.Minute)
	setDefault(&d.MaxWaiting, 10_000)
	setDefault(&d.StepTimeout, 30*time.Second)
	if d.MaxBody <= 0 || d.MaxBody > maxBody {
		d.MaxBody = maxBody
	}
	return d
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Server returns a handler of the Durable Streams protocol for the streams of a host, which must have the classes of [Classes]. It needs
// the path of the request as the client has sent it, so do not strip ServerOptions.Prefix. The path of a stream is up to 1,024 bytes of
// UTF-8 without control characters and without empty, "." and ".." segments.
//
// ClassOptions.Authorize decides about each request before the object is woken. The rights are those at the beginning of the response:
// ServerOptions.EventStream bounds how long a reader keeps them. A request counts as the creation of an object in [dohost.CheckCreation]
// if the object of the stream is neither in memory nor stored. Errors are a [dohost.ErrorBody]; refusals of requests for subscriptions have the
// protocol's form, {"error":{"code":…,"message":…}}. All writers of a stream share one sequence of Stream-Seq.
//
// When the host closes, live readers get the end of their response.
func Server(h *dohost.Host, o *ServerOptions) http.Handler {
	s := &server{host: h, o: o.withDefaults(), reads: newSharedReads()}
	for _, origin := range s.o.Origins {
		_ = s.origins.AddTrustedOrigin(origin) // no request has a text that is no origin
	}
	return s
}

// OwnTokens reports whether [Server], with these options, answers a request without asking for the rights of its sender: a request of
// a worker, which presents the token of its wake, or a request for the key of webhooks. A server that checks bearer tokens itself lets
// these requests pass, since in the protocol the wake's token takes the place of a bearer token: see OwnTokens of package web's Options.
func (o *ServerOptions) OwnTokens(r *http.Request) bool {
	prefix := o.withDefaults().Prefix
	if !strings.HasPrefix(r.URL.Path, prefix+controlSegment+"/") {
		return false
	}
	_, escaped, _ := strings.Cut(r.URL.EscapedPath(), "/"+controlSegment+"/")
	if escaped == "jwks.json" {
		return true
	}
	parts := strings.Split(escaped, "/")
	return r.Method == http.MethodPost && len(parts) == 3 && parts[0] == "subscriptions" && workerActions[parts[2]]
}

// server is the handler.
type server struct {
	host    *dohost.Host
	o       ServerOptions
	reads   *sharedReads
	waiting atomic.Int64 // live readers
	signals atomic.Pointer[signals]
	origins http.CrossOriginProtection
}

// ServeHTTP answers a request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = boundBody(w, r, s.o.StepTimeout)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox") // a stream may contain a page
	if !s.o.Public {
		h.Add("Vary", "Authorization, Cookie")
	}
	if !s.admit(w, r) {
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, s.o.Prefix)
	if !ok {
		s.refuse(w, http.StatusNotFound, "no_route", "want %s{path}", s.o.Prefix)
		return
	}
	first, _, _ := strings.Cut(name, "/")
	switch {
	case first == controlSegment:
		_, escaped, _ := strings.Cut(r.URL.EscapedPath(), "/"+controlSegment)
		s.control(w, r, controlSegment+escaped)
		return
	case !validPath(name):
		s.refuse(w, http.StatusBadRequest, "bad_path", `want a path without empty, "." and ".." segments`)
		return
	}
	answer := s.method(r.Method)
	if answer == nil {
		h.Set("Allow", "GET, HEAD, PUT, POST, DELETE")
		s.refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "want GET, HEAD, PUT, POST or DELETE")
		return
	}
	ctx, err := s.host.AuthorizeHTTP(r, Streams.Get(s.host, name).ID())
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	if a, ok := dohost.AccessFrom(ctx); ok && a.Rights == dohost.RightsReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.refuse(w, http.StatusForbidden, "read_only", "the caller may only read")
		return
	}
	answer(w, r.WithContext(ctx), name)
}

// admit answers a preflight, and a write of a page of another origin, and reports whether the request is another one.
func (s *server) admit(w http.ResponseWriter, r *http.Request) bool {
	if !s.o.CORS {
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if s.origins.Check(r) != nil {
			s.refuse(w, http.StatusForbidden, "foreign_origin", "pages of other origins cannot write")
			return false
		}
		return true
	}
	w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	allowAllOrigins(w.Header())
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// method returns the function that answers requests with a method, or nil.
func (s *server) method(name string) func(http.ResponseWriter, *http.Request, string) {
	switch name {
	case http.MethodGet:
		return s.get
	case http.MethodHead:
		return s.head
	case http.MethodPut:
		return s.put
	case http.MethodPost:
		return s.post
	case http.MethodDelete:
		return s.delete
	}
	return nil
}

// validPath reports whether a path is clean. The host checks the rest of the name.
func validPath(name string) bool {
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func allowAllOrigins(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, PUT, POST, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "*, Authorization") // the star does not include it
	h.Set("Access-Control-Expose-Headers", "*")
	h.Set("Access-Control-Max-Age", "86400")
}

func (s *server) refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	s.host.WriteError(w, &dohost.PublicError{Status: status, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (s *server) noStream(w http.ResponseWriter) {
	s.refuse(w, http.StatusNotFound, "no_stream", "there is no such stream")
}

// call calls a method of an object. It repeats a call that did not run and, if the call is idempotent, one that may have run.
func call[O, In, Out any](ctx context.Context, to dohost.Stub[O], idempotent bool, m func(*O, context.Context, In) (Out, error), in In) (out Out, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := &dohost.RetryPolicy{}
	if idempotent {
		p.ShouldRetry = dohost.RetryIdempotent
	}
	err = dohost.Retry(ctx, p, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, to, m, in)
		return err
	})
	return out, err
}

// body reads the body of a request for an object, or answers it. release must be called when the body is not needed any more.
func (s *server) body(w http.ResponseWriter, r *http.Request, id dohost.ID, limit int64) (body []byte, release func(), ok bool) {
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		s.tooLarge(w, limit)
		return nil, func() {}, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	body, release, err := s.host.ReadBody(r, id)
	if err == nil {
		return body, release, true
	}
	release()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		s.tooLarge(w, limit)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Header().Set("Connection", "close")
		s.refuse(w, http.StatusRequestTimeout, "slow_body", "the request body arrived too slowly")
	} else {
		s.host.WriteError(w, err)
	}
	return nil, func() {}, false
}

func (s *server) tooLarge(w http.ResponseWriter, limit int64) {
	s.refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the limit of a body is %d bytes", limit)
}

// head answers HEAD.
func (s *server) head(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Cache-Control", "no-store")
	found, err := call(r.Context(), Streams.Get(s.host, name), true, (*Stream).head, struct{}{})
	switch {
	case err != nil:
		s.host.WriteError(w, err)
	case found == nil:
		s.noStream(w)
	default:
		found.describe(w.Header())
		if found.Sliding {
			w.Header().Set("Stream-TTL", strconv.FormatInt(int64(found.TTL/time.Second), 10))
		}
		if !found.ExpiresAt.IsZero() {
			w.Header().Set("Stream-Expires-At", found.ExpiresAt.UTC().Format(time.RFC3339Nano))
		}
		w.WriteHeader(http.StatusOK)
	}
}

// describe sets the header fields of every response about the tail of a stream.
func (i *info) describe(h http.Header) {
	h.Set("Content-Type", i.ContentType)
	h.Set("Stream-Next-Offset", i.Tail)
	if i.Closed {
		h.Set("Stream-Closed", "true")
	}
}

// delete answers DELETE.
func (s *server) delete(w http.ResponseWriter, r *http.Request, name string) {
	existed, err := call(r.Context(), Streams.Get(s.host, name), false, (*Stream).delete, struct{}{})
	switch {
	case err != nil:
		s.host.WriteError(w, err)
	case !existed:
		s.noStream(w)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
