package web

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// Browsers cannot send a token with a WebSocket. A page with a token requests a ticket and puts it into the query of
// the socket's URL instead.

// ticketParam is the member of the query.
const ticketParam = "ticket"

const (
	// ticketTime is how long a ticket is valid.
	ticketTime = time.Minute
	// maxTickets bounds the unused tickets of a listener. Issuing one more invalidates
	// the oldest.
	maxTickets = 4096
)

// tickets has the tickets that one listener has issued. A ticket is random, opens one WebSocket at one agents path of
// that listener, once, and ends with the process. Methods may be called from any goroutine.
type tickets struct {
	mu     sync.Mutex
	issued map[string]ticket // by its text
	order  []string          // texts, oldest first; those of used tickets too
}

type ticket struct {
	path  [sha256.Size]byte // its hash, so that a ticket has one size
	token string            // identity of the token that it was issued for
	end   time.Time
}

func newTickets() *tickets { return &tickets{issued: map[string]ticket{}} }

// issue returns a ticket for a path as written in a URL, and for the identity of a token.
func (t *tickets) issue(path, token string, now time.Time) string {
	text := rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.order) > 0 {
		oldest, valid := t.issued[t.order[0]]
		if valid && now.Before(oldest.end) && len(t.order) < maxTickets {
			break
		}
		delete(t.issued, t.order[0])
		t.order = t.order[1:]
	}
	t.issued[text] = ticket{hashPath(path), token, now.Add(ticketTime)}
	t.order = append(t.order, text)
	return text
}

// use removes the ticket from the query of a WebSocket handshake, and returns the identity of its token. ok reports
// whether the ticket is valid. In any case the ticket is invalid afterwards.
func (t *tickets) use(r *http.Request, now time.Time) (token string, ok bool) {
	if !isHandshake(r) {
		return "", false
	}
	q := r.URL.Query()
	text := q.Get(ticketParam)
	t.mu.Lock()
	issued, ok := t.issued[text]
	delete(t.issued, text)
	t.mu.Unlock()
	if !ok || now.After(issued.end) || issued.path != hashPath(r.URL.EscapedPath()) {
		return "", false
	}
	q.Del(ticketParam) // the object must not get it
	r.URL.RawQuery = q.Encode()
	return issued.token, true
}

// hashPath hashes an agents path without its empty segments.
func hashPath(path string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join(pathSegments(path), "/")))
}

// isHandshake reports whether a request opens a WebSocket. It checks all requirements of RFC 6455: one header
// alone does not make a request a handshake.
func isHandshake(r *http.Request) bool {
	if r.Method != http.MethodGet || !dohost.IsUpgrade(r) || r.Header.Get("Sec-WebSocket-Key") == "" {
		return false
	}
	for _, line := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}
