package streams

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// TestSubscriptionsAreAuthorized has users that own the streams and the subscriptions below their names. Workers need only their tokens.
func TestSubscriptionsAreAuthorized(t *testing.T) {
	classes := Classes(&ClassOptions{Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		user := r.Request.Header.Get("User")
		switch {
		case user == "":
			return dohost.Access{}, dohost.ErrUnauthenticated
		case strings.HasPrefix(r.ID.Name, user+"/") || r.ID.Class == string(Subscriptions) && strings.HasPrefix(r.ID.Name, user+"-"):
			return dohost.Access{Identity: user, Rights: dohost.RightsReadWrite}, nil
		case strings.HasPrefix(r.ID.Name, "public/") || user == "guest":
			return dohost.Access{Identity: user, Rights: dohost.RightsReadOnly}, nil
		}
		return dohost.Access{}, dohost.ErrForbidden
	}})
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		const ann, guest = "User: ann", "User: guest"
		serve(s, "PUT", "ann/wakes", "", asJSON, ann)
		for _, r := range []struct{ want, method, path, body, user string }{
			{"401 unauthenticated", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"ann/**","wake_stream":"ann/wakes"}`, ""},
			{"403 forbidden", "PUT", to("ben-s", ""), `{"type":"pull-wake","pattern":"ann/**","wake_stream":"ann/wakes"}`, ann},
			{"403 forbidden", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"**","wake_stream":"ann/wakes"}`, ann},
			{"403 forbidden", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"*/x","wake_stream":"ann/wakes"}`, ann},
			{"403 forbidden", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"ann/**","wake_stream":"ben/wakes"}`, ann},
			{"403 read_only", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"ann/**","wake_stream":"public/wakes"}`, ann},
			{"403 forbidden", "PUT", to("ann-s", ""), `{"type":"pull-wake","streams":["public/a","ben/a"],"wake_stream":"ann/wakes"}`, ann},
			{"201", "PUT", to("ann-s", ""), `{"type":"pull-wake","pattern":"ann/**","streams":["public/a"],"wake_stream":"ann/wakes"}`, ann},
			{"403 forbidden", "POST", to("ann-s", "/streams"), `{"streams":["ben/a"]}`, ann},
			{"204", "POST", to("ann-s", "/streams"), `{"streams":["public/b"]}`, ann},
			{"200", "GET", to("ann-s", ""), "", guest},
			{"403 read_only", "DELETE", to("ann-s", ""), "", guest},
			{"403 read_only", "POST", to("ann-s", "/claim"), `{"worker":"w"}`, guest},
			{"403 read_only", "DELETE", to("ann-s", "/streams/public%2Fb"), "", guest},
			{"200", "GET", "__ds/jwks.json", "", ""},
			{"201", "PUT", "ann/a", "[1]", ann},
		} {
			header := []string{asJSON}
			if r.user != "" {
				header = append(header, r.user)
			}
			if got := code(serve(s, r.method, r.path, r.body, header...)); got != r.want {
				t.Errorf("%s %s %s for %q: %s, want %s", r.method, r.path, r.body, r.user, got, r.want)
			}
		}
		b := want[wakeBody](t, s, "200", "POST", to("ann-s", "/claim"), `{"worker":"w"}`, ann)
		want[any](t, s, "401 TOKEN_INVALID", "POST", to("ann-s", "/ack"), b.ackBody(true), ann)
		want[any](t, s, "200", "POST", to("ann-s", "/ack"), b.ackBody(true), b.bearer())
	})
}

// TestOwnTokens selects the requests of workers.
func TestOwnTokens(t *testing.T) {
	o := &ServerOptions{Prefix: "/x"}
	for request, want := range map[string]bool{
		"POST /x/__ds/subscriptions/a/ack": true, "POST /x/__ds/subscriptions/a%2Fb/callback": true, "POST /x/__ds/subscriptions/a/release": true,
		"GET /x/__ds/jwks.json":              true,
		"POST /x/__ds/subscriptions/a/claim": false, "GET /x/__ds/subscriptions/a/ack": false, "PUT /x/__ds/subscriptions/a": false,
		"POST /x/__ds/subscriptions/a%2Fack": false, "POST /x/a/__ds/subscriptions/a/ack": false, "POST /v1/stream/__ds/subscriptions/a/ack": false,
		"POST /x/__ds/subscriptions/a/b/ack": false, "GET /x/jwks.json": false, "POST /x/__ds": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := o.OwnTokens(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s: %t", request, got)
		}
	}
}
