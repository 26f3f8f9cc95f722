package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Browsers cannot send a token with a WebSocket. A ticket stands in its place, in the query: it is given to
// who presents a token, opens WebSockets alone, and is good for a minute. It is signed with a token, so
// nobody has to remember it.

// ticketParam is the member of the query.
const ticketParam = "ticket"

// ticketTime is for how long a ticket is good.
const ticketTime = time.Minute

// newTicket makes a ticket that ends at some time.
func newTicket(token string, end time.Time) string {
	at := strconv.FormatInt(end.Unix(), 10)
	return at + "." + signature(token, at)
}

func signature(token, at string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("dohost ticket " + at)) // a hash takes everything
	return hex.EncodeToString(mac.Sum(nil))
}

// takeTicket takes the ticket off a request for a WebSocket, and says whether it is good.
func takeTicket(r *http.Request, tokens []string, now time.Time) bool {
	if !isUpgrade(r) {
		return false
	}
	q := r.URL.Query()
	at, signed, ok := strings.Cut(q.Get(ticketParam), ".")
	end, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || now.Unix() > end {
		return false
	}
	known := 0
	for _, t := range tokens {
		known |= subtle.ConstantTimeCompare([]byte(signature(t, at)), []byte(signed))
	}
	if known == 0 {
		return false
	}
	q.Del(ticketParam) // it is this server's, not the object's
	r.URL.RawQuery = q.Encode()
	return true
}
