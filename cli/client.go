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

// hostFlags say how a running host is asked.
type hostFlags struct {
	Admin     string `env:"DOHOST_ADMIN" default:"127.0.0.1:8788" placeholder:"ADDR" help:"The running host's admin listener (${default})."`
	TokenFile string `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Its first token is presented."`
}

// ask sends a request to the admin listener. Its error is what the host answered, or
// that none did.
func (f *hostFlags) ask(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	u := strings.TrimSuffix(f.Admin, "/")
	if !strings.Contains(u, "://") {
		u = "http://" + u
	}
	u += path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	access := accessFlags{TokenFile: f.TokenFile}
	tokens, err := access.tokens()
	if err != nil {
		return nil, err
	}
	if len(tokens) > 0 {
		req.Header.Set("Authorization", "Bearer "+tokens[0])
	}
	res, err := http.DefaultClient.Do(req)
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return nil, fmt.Errorf("no host answers at %s: %w", f.Admin, err)
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close() // it has been read, or is of no use
	return nil, answered(res)
}

// answered is the error that a host answered with.
func answered(res *http.Response) error {
	var b dohost.ErrorBody
	if err := json.NewDecoder(res.Body).Decode(&b); err != nil || b.Message == "" {
		return fmt.Errorf("the host answered %s", res.Status)
	}
	if b.Object != "" {
		return fmt.Errorf("%s %s: %w", b.Op, b.Object, &b)
	}
	return &b
}

// get asks for JSON.
func get[T any](ctx context.Context, f *hostFlags, method, path string, query url.Values, body io.Reader) (v T, err error) {
	res, err := f.ask(ctx, method, path, query, body)
	if err != nil {
		return v, err
	}
	defer res.Body.Close() // read to its end
	return v, json.NewDecoder(res.Body).Decode(&v)
}

// objectPath is the path of an object, and of what follows it.
func objectPath(id dohost.ID, rest string) string {
	return "/v1/objects/" + url.PathEscape(id.Class) + "/" + url.PathEscape(id.Name) + rest
}
