package web

import (
	"net/http/httptest"
	"testing"
	"time"
)

func TestATicketEnds(t *testing.T) {
	made := time.Unix(1000, 0)
	ticket := newTicket("token", made.Add(ticketTime))
	for after, good := range map[time.Duration]bool{0: true, ticketTime: true, ticketTime + time.Second: false} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/agents/a/b?ticket="+ticket, nil)
		r.Header.Set("Upgrade", "websocket")
		if got := takeTicket(r, []string{"other", "token"}, made.Add(after)); got != good {
			t.Errorf("after %v: %t", after, got)
		}
	}
}
