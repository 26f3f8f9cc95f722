package web

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

// ReadTokens reads a file of tokens, one a line of at most 64 KiB. It ignores space around a token, empty lines, and lines that begin with #. A
// file without tokens is an error: it would refuse every client. Each error is a [*fs.PathError].
func ReadTokens(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	var tokens []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if t := strings.TrimSpace(lines.Text()); t != "" && !strings.HasPrefix(t, "#") {
			tokens = append(tokens, t)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if len(tokens) == 0 {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("the file contains no token")}
	}
	return tokens, nil
}

type tokenKey struct{}

// TokenIdentity returns the identity of the token that a request has presented to a [Handler] with tokens, or that
// its ticket was issued for: the first 8 bytes of the token's SHA-256, in hexadecimal digits. It does not change with
// the order of the tokens. ctx is the context of the request, which an Authorize function gets. ok is false if the
// listener has no tokens.
func TokenIdentity(ctx context.Context) (identity string, ok bool) {
	identity, ok = ctx.Value(tokenKey{}).(string)
	return identity, ok
}

func withToken(r *http.Request, identity string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), tokenKey{}, identity))
}

// authorize passes requests that present one of tokens, or a valid ticket if tk is not nil, with the identity of the
// token. Without tokens it passes all.
func authorize(tokens []string, tk *tickets, next http.Handler) http.Handler {
	if len(tokens) == 0 {
		return next
	}
	var sums [][sha256.Size]byte
	for _, t := range tokens {
		sums = append(sums, sha256.Sum256([]byte(t)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tk != nil {
			if identity, ok := tk.use(r, time.Now()); ok {
				next.ServeHTTP(w, withToken(r, identity))
				return
			}
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		known := 0
		for _, sum := range sums { // all of them, so that the time reveals nothing
			known |= subtle.ConstantTimeCompare(sum[:], got[:])
		}
		if known == 0 || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // a client without a token keeps no connection
			refuse(w, http.StatusUnauthorized, "unauthorized", "a bearer token is needed")
			return
		}
		r.Header.Del("Authorization") // it is this server's, not the object's
		next.ServeHTTP(w, withToken(r, hex.EncodeToString(got[:8])))
	})
}
