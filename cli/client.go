package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/dohost/dohost"
)

// hostFlags select the running host, and its token.
type hostFlags struct {
	Admin          string `env:"DOHOST_ADMIN" default:"127.0.0.1:8788" placeholder:"ADDR" help:"The running host's admin listener: host:port or unix:PATH (${default})."`
	AdminTokenFile string `env:"DOHOST_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Present the first token of this file."`
}

// base is the URL of the admin listener.
func (f *hostFlags) base() (string, error) {
	if err := checkFilled("--admin", "DOHOST_ADMIN", f.Admin); err != nil {
		return "", err
	}
	if f.Admin == "off" {
		return "", errors.New("--admin off: want host:port or unix:PATH of the admin listener of a running host")
	}
	if isUnix(f.Admin) {
		return "http://localhost", nil
	}
	addr := strings.TrimSuffix(f.Admin, "/")
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		return addr, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return "", fmt.Errorf("--admin %s: want host:port, such as 127.0.0.1:8788, a URL, or unix:PATH", f.Admin)
	}
	if host == "" {
		addr = net.JoinHostPort("localhost", port)
	}
	return "http://" + addr, nil
}

// request sends a request to the admin listener and checks the media type of the answer. It returns the host's error,
// or an error if no host answered.
func (f *hostFlags) request(ctx context.Context, media, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	u, err := f.base()
	if err != nil {
		return nil, err
	}
	u += path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	if err := authorize(req.Header, "--admin-token-file", f.AdminTokenFile); err != nil {
		return nil, err
	}
	res, err := f.client().Do(req)
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return nil, fmt.Errorf("no host answers at %s: %w", f.Admin, err)
	}
	if err != nil {
		return nil, f.notAdminError(err)
	}
	got := res.Header.Get("Content-Type")
	if res.StatusCode == http.StatusOK && got == media {
		return res, nil
	}
	defer res.Body.Close() // the body has been read, or is useless
	if res.StatusCode == http.StatusOK {
		return nil, f.notAdminError(fmt.Errorf("the server there sends the content type %q", got))
	}
	return nil, f.responseError(res)
}

// authorize adds the first token of a file to a request's header. No path adds nothing.
func authorize(h http.Header, flag, path string) error {
	tokens, err := readTokens(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if len(tokens) > 0 {
		h.Set("Authorization", "Bearer "+tokens[0])
	}
	return nil
}

// client returns an HTTP client that reaches the listener.
func (f *hostFlags) client() *http.Client {
	if !isUnix(f.Admin) {
		return http.DefaultClient
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", unixPath(f.Admin))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// notAdminError is the error for a server that is not an admin listener.
func (f *hostFlags) notAdminError(err error) error {
	return fmt.Errorf("no dohost admin listener answers at %s: %w", f.Admin, err)
}

// responseError is the error that a host answered with.
func (f *hostFlags) responseError(res *http.Response) error {
	var b dohost.ErrorBody
	if err := json.NewDecoder(res.Body).Decode(&b); err != nil || b.Message == "" || b.Code == "" || b.Ran == "" {
		return f.notAdminError(fmt.Errorf("the server there answered %s", res.Status))
	}
	for _, text := range []*string{&b.Code, &b.Message, &b.Op, &b.Object} {
		*text = printable(*text)
	}
	if b.Code == "no_route" {
		return f.notAdminError(&b)
	}
	if b.Object != "" {
		return fmt.Errorf("%s %s: %w", b.Op, b.Object, &b)
	}
	return &b
}

// get asks for JSON.
func get[T any](ctx context.Context, f *hostFlags, method, path string, query url.Values, body io.Reader) (v T, err error) {
	res, err := f.request(ctx, "application/json", method, path, query, body)
	if err != nil {
		return v, err
	}
	defer res.Body.Close() // read to its end
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		return v, f.notAdminError(err)
	}
	return v, nil
}

// objectPath is the path of an object, followed by rest.
func objectPath(id dohost.ID, rest string) string {
	return "/v1/objects/" + url.PathEscape(id.Class) + "/" + url.PathEscape(id.Name) + rest
}
