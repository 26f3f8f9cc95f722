package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// WebhookOptions tunes the webhooks of subscriptions. A nil *WebhookOptions, and the zero WebhookOptions, mean the defaults.
type WebhookOptions struct {
	// Loopback permits webhooks at http and https URLs of localhost and of loopback addresses, for development. All other URLs must be https, and
	// their addresses must not be of a private, local or reserved network: a client that may create a subscription chooses where the host sends
	// requests. A URL has at most 2,048 bytes.
	Loopback bool
	// Check decides about the URL of a new subscription, in addition. The client gets the text of its error. It may be called
	// concurrently. Nil admits every URL.
	Check func(*url.URL) error
	// Transport sends the requests. It must check the addresses itself, and be safe for concurrent use. Nil means a transport that
	// refuses the addresses above, also if the name of the host has another address later.
	Transport http.RoundTripper
}

// maxWebhookURL bounds the URL of a webhook in bytes, and maxWebhookResponse the part of its response that is read.
const maxWebhookURL, maxWebhookResponse = 2048, 64 << 10

// sender sends the requests to webhooks.
type sender struct {
	o      WebhookOptions
	client http.Client
}

func newSender(o *WebhookOptions) *sender {
	s := &sender{}
	if o != nil {
		s.o = *o
	}
	s.client = http.Client{
		Transport:     s.o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.client.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second, Control: s.control}
		s.client.Transport = &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
			MaxIdleConns: 64, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return s
}

// control refuses connections to addresses that webhooks may not have.
func (s *sender) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return s.checkAddress(at.Addr())
}

var errLocalAddress = errors.New("the address is of a private, local or reserved network")

// public is the network of all public addresses of IPv6. Those outside of it translate addresses of IPv4, or are local or reserved.
var public = netip.MustParsePrefix("2000::/3")

// reserved are the networks of no public host that the methods of netip.Addr do not know.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// checkAddress refuses an address that a webhook may not have.
func (s *sender) checkAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("") // no prefix contains an address with a zone
	if a.IsLoopback() && s.o.Loopback {
		return nil
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !public.Contains(a) {
		return errLocalAddress
	}
	for _, network := range reserved {
		if network.Contains(a) {
			return errLocalAddress
		}
	}
	return nil
}

// checkURL refuses the URL of a webhook.
func (s *sender) checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || len(text) > maxWebhookURL {
		return fmt.Errorf("want a URL of at most %d bytes with a host, and without a user and a fragment", maxWebhookURL)
	}
	address, err := netip.ParseAddr(u.Hostname())
	isAddress := err == nil
	loopback := u.Hostname() == "localhost" || isAddress && address.Unmap().IsLoopback()
	switch {
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback && s.o.Loopback):
		return errors.New("want a URL of https")
	case u.Hostname() == "localhost" && !s.o.Loopback:
		return errLocalAddress
	case isAddress:
		if err := s.checkAddress(address); err != nil {
			return err
		}
	}
	if s.o.Check != nil {
		return s.o.Check(u)
	}
	return nil
}

// send sends the body of a wake, and reports whether the response ends the wake.
func (s *sender) send(ctx context.Context, to string, body []byte, key *signingKey) (done bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "dohost")
	r.Header.Set("Webhook-Signature", key.sign(body, time.Now()))
	w, err := s.client.Do(r)
	if err != nil {
		return false, err
	}
	defer w.Body.Close()
	if w.StatusCode < 200 || w.StatusCode > 299 {
		return false, fmt.Errorf("the webhook answered with the status %d", w.StatusCode)
	}
	var result struct {
		Done bool `json:"done"`
	}
	// A response of another form means that the worker is not done.
	if text, err := io.ReadAll(io.LimitReader(w.Body, maxWebhookResponse)); err == nil && json.Unmarshal(text, &result) == nil {
		return result.Done, nil
	}
	return false, nil
}
