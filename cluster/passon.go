package cluster

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// sign returns the value of Header for a request, which must have its final URL and host.
func (rt *router) sign(r *http.Request, p passed) string {
	fields := strconv.Itoa(p.hops) + " " + p.client
	mac := hmac.New(sha256.New, rt.node.o.Secret)
	for _, s := range []string{Header, fields, r.Method, r.Host, r.URL.RequestURI(), p.relay} {
		mac.Write([]byte(strconv.Itoa(len(s)) + " " + s))
	}
	return fields + " " + hex.EncodeToString(mac.Sum(nil))
}

// verify returns the content of Header, and whether a node of the cluster has signed it for this request.
func (rt *router) verify(r *http.Request, header []string) (p passed, ok bool) {
	if len(header) != 1 {
		return p, false
	}
	fields := strings.Split(header[0], " ")
	if len(fields) != 3 {
		return p, false
	}
	hops, err := strconv.Atoi(fields[0])
	p = passed{hops: hops, client: fields[1]}
	if relay, has := r.Header[RelaySocketHeader]; has {
		p.relay = strings.Join(relay, ",")
		if _, ok := parseRelay(p.relay); !ok {
			return passed{}, false
		}
	}
	if err != nil || hops < 1 || hops > MaxHops || !hmac.Equal([]byte(rt.sign(r, p)), []byte(header[0])) {
		return passed{}, false
	}
	return p, true
}

// errNotSent is an error of a dial: no byte of the request was sent.
var errNotSent = errors.New("cluster: no connection to the node")

// dialTime bounds a connection to another node.
const dialTime = 5 * time.Second

// transport returns the transport of a router, whose errors of dials are errNotSent.
func transport(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.Proxy, t.DisableCompression, t.DialTLSContext = nil, true, nil
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // HTTP/1.1: WebSockets need it
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTime}).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, errors.Join(errNotSent, err)
		}
		return c, nil
	}
	return t
}

// sender sends a request to the target in its context. If no connection can be made, and the cell has another node by now, it sends
// the request to that one.
type sender struct{ *router }

// RoundTrip implements [http.RoundTripper].
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	to := targetOf(r)
	res, err := s.send(r, to.address, to.passed)
	if err == nil || !errors.Is(err, errNotSent) {
		return res, err
	}
	id, address := s.node.known.Load().holder(to.cell)
	if address == "" || id == to.id || id == s.node.self.ID {
		return nil, err
	}
	s.node.inFlight.move(to, id, address)
	return s.send(r, address, to.passed)
}

func (s *sender) send(r *http.Request, address string, p passed) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	r.Host = sentHost(r)
	r.Header.Set(Header, s.sign(r, p))
	if p.relay != "" {
		r.Header.Set(RelaySocketHeader, p.relay)
	}
	return s.o.Transport.RoundTrip(r)
}

// sentHost returns the host that net/http sends for a request: never none, and without the zone of an IPv6 address.
func sentHost(r *http.Request) string {
	if r.Host == "" {
		return r.URL.Host
	}
	end := strings.LastIndex(r.Host, "]")
	if zone := strings.Index(r.Host, "%"); strings.HasPrefix(r.Host, "[") && zone >= 0 && zone < end {
		return r.Host[:zone] + r.Host[end:]
	}
	return r.Host
}

// fail answers a request that another node has not answered.
func (rt *router) fail(w http.ResponseWriter, r *http.Request, err error) {
	to := targetOf(r)
	badBody, _ := errors.AsType[*bodyError](err)
	lost := errors.Is(context.Cause(r.Context()), errNoMember)
	if badBody == nil && !lost && r.Context().Err() != nil {
		badBody = to.body.failure() // net/http has ended the context for it
	}
	switch {
	case isHijacked(w): // the client has not read the header of the upgrade
	case badBody != nil:
		refuseBody(w, errors.Is(badBody, os.ErrDeadlineExceeded))
	case !lost && r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has disconnected
	case errors.Is(err, errNotSent):
		rt.note("a node cannot be reached", to, err)
		unavailable(w, r)
	default:
		rt.note("a node has not answered a request", to, err)
		body := dohost.ErrorBody{
			Code: "no_answer", Message: "the node of the object has not answered", Ran: dohost.OutcomeUnknown.String(),
		}
		answer(w, http.StatusBadGateway, &body)
	}
}

// note logs a failure of another node. While a node is down, each request for it fails.
func (rt *router) note(failure string, to *target, err error) {
	if skipped, ok := rt.failures.next(); ok {
		rt.node.log.Warn(failure, "node", to.address, "cell", to.cell, "err", err, "not_logged", skipped)
	}
}

// retryAfter is the number of seconds in Retry-After.
const retryAfter = "1"

// unavailable answers a request for a cell that no node serves now.
func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", retryAfter)
	answer(w, http.StatusServiceUnavailable, &dohost.ErrorBody{
		Code: "not_served", Message: "no node serves the object at the moment", Ran: dohost.OutcomeNotRun.String(), Retryable: true,
	})
}

// refuse answers a request whose Header has no valid signature.
func refuse(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusForbidden, &dohost.ErrorBody{
		Code: "not_signed", Message: "the header " + Header + " has no valid signature: only nodes of the cluster send it", Ran: dohost.OutcomeNotRun.String(),
	})
}

// refuseBody answers a request whose body cannot be read: it stalls, or is malformed.
func refuseBody(w http.ResponseWriter, slow bool) {
	status, body := http.StatusBadRequest, dohost.ErrorBody{
		Code: "bad_body", Message: "the request body cannot be read", Ran: dohost.OutcomeUnknown.String(),
	}
	if slow {
		status, body.Code, body.Message = http.StatusRequestTimeout, "slow_body", "the request body arrived too slowly"
	}
	w.Header().Set("Connection", "close")
	answer(w, status, &body)
}

func answer(w http.ResponseWriter, status int, body *dohost.ErrorBody) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

// stepWriter sets a deadline for each write of a response.
type stepWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	step     time.Duration
	hijacked bool
}

func isHijacked(w http.ResponseWriter) bool {
	s, ok := w.(*stepWriter)
	return ok && s.hijacked
}

// Unwrap is for http.ResponseController.
func (w *stepWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the header.
func (w *stepWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body. A part has at most the 32 KiB of the proxy's buffer.
func (w *stepWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// FlushError flushes the response.
func (w *stepWriter) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

// Hijack returns the connection of a WebSocket.
func (w *stepWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	s := &stepConn{c, w.step}
	s.extend() // the proxy writes the header of the response to buffered
	return s, buffered, nil
}

func (w *stepWriter) extend() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.step)) // not every server has one
}

// stepConn is the connection to the client of a WebSocket, with a deadline for each write. It has no CloseWrite: the proxy would call it when
// the owner has closed its connection, and then wait for a client that need not close its own.
type stepConn struct {
	net.Conn
	step time.Duration
}

// Write writes at most the 32 KiB of the proxy's buffer.
func (c *stepConn) Write(p []byte) (int, error) {
	c.extend()
	return c.Conn.Write(p)
}

func (c *stepConn) extend() {
	_ = c.SetWriteDeadline(time.Now().Add(c.step)) // a closed connection fails in Write
}
