package web_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// locked is an object of a class whose Authorize function refuses every caller.
type locked struct{ st *dohost.State }

const lockeds dohost.Namespace[locked] = "locked"

func lockedClass() dohost.Class {
	return dohost.Bind(lockeds, func(_ context.Context, st *dohost.State) (*locked, error) { return &locked{st}, nil },
		dohost.Authorize[locked](func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
			return dohost.Access{}, dohost.ErrUnauthenticated
		}),
		dohost.Expose("put", func(l *locked, ctx context.Context, v string) (struct{}, error) {
			return struct{}{}, dohost.Put(ctx, l.st.Storage(), "v", v)
		}),
		dohost.OnHTTP(func(_ *locked, w http.ResponseWriter, r *http.Request) {
			a, _ := dohost.AccessFrom(r.Context())
			fmt.Fprintf(w, "%T %v", a.Identity, a.Rights == dohost.ReadWrite)
		}))
}

func TestAuthorizeIsAskedOnThePublicListenerAlone(t *testing.T) {
	var woken atomic.Int64
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1, Listener: dohost.Listener{
		Waking: func(dohost.ID, dohost.Epoch) { woken.Add(1) },
	}}, lockedClass())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	pub, adm := start(t, web.Handler(h, nil)), start(t, web.Admin(h, nil))
	for _, path := range []string{"/objects/locked/a/put", "/objects/locked/a/none", "/objects/locked/a/http/x", "/agents/locked/a", "/agents/locked/a/x"} {
		_, res := pub.wantError("POST", path, `"v"`, 401, "unauthenticated")
		if res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", path)
		}
	}
	if there, err := h.Exists(t.Context(), lockeds.Get(h, "a").ID()); woken.Load() > 0 || there || err != nil {
		t.Errorf("%d objects were woken, exists: %v, %v", woken.Load(), there, err)
	}
	adm.want("GET", "/agents/locked/a/x", "", 200, "web.Operator true")
}
