package streams

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// TestStreamsThatArePendingAreListedFirst has a subscription that names as many streams as a wake may have, and two more by its pattern, which are the
// last ones by their paths. Only those two have data.
func TestStreamsThatArePendingAreListedFirst(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "wakes", "", asJSON)
		names := make([]string, maxListed)
		for i := range names {
			names[i] = fmt.Sprintf(`"n/%04d"`, i)
		}
		want[any](t, s, "201", "PUT", to("s", ""),
			`{"type":"pull-wake","wake_stream":"wakes","pattern":"z/*","streams":[`+strings.Join(names, ",")+`]}`)
		put(t, s, "z/a")
		put(t, s, "z/b")
		h.Advance(time.Millisecond) // the subscription learns of both
		claimed := want[wakeBody](t, s, "200", "POST", to("s", "/claim"), `{"worker":"w"}`)
		described := want[describedBody](t, s, "200", "GET", to("s", ""), "")
		for what, list := range map[string][]streamInfo{"wake": claimed.Streams, "description": described.Streams} {
			if len(list) != maxListed || list[0].Path != "z/a" || list[1].Path != "z/b" {
				t.Errorf("the %s has %d streams, the first ones are %+v", what, len(list), list[:min(3, len(list))])
			}
		}
	})
}

// TestWebhookResponseThatIsLong has responses that are longer than the part that the server reads: "done" counts only if that part is complete.
func TestWebhookResponseThatIsLong(t *testing.T) {
	for response, done := range map[string]bool{
		`{"done":true}` + strings.Repeat(" ", 2*maxWebhookResponse):                 true,
		`{"done":true}` + strings.Repeat(" ", maxWebhookResponse) + "no JSON":       true,
		`{"done":true,"more":"` + strings.Repeat("x", maxWebhookResponse) + `"}`:    false,
		`{"more":"` + strings.Repeat("x", maxWebhookResponse-32) + `","done":true}`: true,
		`{"more":"` + strings.Repeat("x", maxWebhookResponse) + `","done":true}`:    false,
		strings.Repeat(" ", maxWebhookResponse) + `{"done":true}`:                   false,
	} {
		runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
			r.set(func(context.Context, *wakeBody) (int, string) { return 200, response })
			tail := put(t, s, "events/a")
			h.Advance(5 * time.Second) // less than the lease
			d := want[describedBody](t, s, "200", "GET", to("h", ""), "")
			if len(d.Streams) != 1 || (d.Streams[0].Acked == tail) != done {
				t.Errorf("%.20s…, of %d bytes: the streams are %+v, want the cursor at the tail: %t", response, len(response), d.Streams, done)
			}
		})
	}
}

// TestResponseKeepsItsFirstRights ends the rights of a reader of events: it gets data until the end of its response, and no other
// response.
func TestResponseKeepsItsFirstRights(t *testing.T) {
	var ended atomic.Bool
	classes := Classes(&ClassOptions{Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		if ended.Load() && r.Request.Method == http.MethodGet {
			return dohost.Access{}, dohost.ErrForbidden
		}
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	}})
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", "", plain)
		begun := time.Now()
		events := startReading(h, s, "a?offset=-1&live=sse")
		h.Advance(time.Second)
		ended.Store(true)
		serve(s, "POST", "a", "later", plain)
		w := events.response(t)
		if data, _ := parseEvents(t, w.Body.String()); data != "later" || time.Since(begun) != time.Minute {
			t.Errorf("%q after %v, want the data until a minute", data, time.Since(begun))
		}
		if w := serve(s, "GET", "a?offset=-1&live=sse", ""); w.Code != http.StatusForbidden {
			t.Errorf("the next response: %s", summary(w))
		}
	})
}
