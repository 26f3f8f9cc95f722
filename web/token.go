package web

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// ReadTokens reads a file of tokens, one a line; empty lines and those that begin
// with # do not count. A file without any is an error: it would let nobody in.
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
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s: no token in it", path)
	}
	return tokens, nil
}

// authorize passes requests that present one of tokens, or a valid ticket if tk is not nil. Without tokens it
// passes all.
func authorize(tokens []string, tk *tickets, next http.Handler) http.Handler {
	if len(tokens) == 0 {
		return next
	}
	var sums [][sha256.Size]byte
	for _, t := range tokens {
		sums = append(sums, sha256.Sum256([]byte(t)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tk != nil && tk.use(r, time.Now()) {
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		known := 0
		for _, sum := range sums { // all of them, so that time tells nothing
			known |= subtle.ConstantTimeCompare(sum[:], got[:])
		}
		if known == 0 || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // a client without a token keeps no connection
			refuse(w, http.StatusUnauthorized, "unauthorized", "a bearer token is needed")
			return
		}
		r.Header.Del("Authorization") // it is this server's, not the object's
		next.ServeHTTP(w, r)
	})
}
