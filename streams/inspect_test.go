package streams

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// TestDetails lists the items of a stream and of a subscription for operators, and wakes neither.
func TestDetails(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		idle := put(t, s, "events/a")
		want[any](t, s, "201", "PUT", to("s", ""), strings.Replace(pullAll, "{", `{"streams":["later"],`, 1))
		from := put(t, s, "events/b")
		if w := serve(s, "POST", "events/b", "2", asJSON, ofP, "Producer-Epoch: 3", "Producer-Seq: 0"); w.Code != 200 {
			t.Fatal(code(w))
		}
		h.Advance(2 * time.Second)
		tail := serve(s, "HEAD", "events/b", "").Header().Get("Stream-Next-Offset")
		h.EvictAll()
		for id, want := range map[dohost.ID][]string{
			Streams.Get(h, "events/b").ID(): {"producer p : epoch 3, the last request is 0"},
			Streams.Get(h, "events/a").ID(): nil,
			Subscriptions.Get(h, "s").ID(): {
				"link events/b pending: glob, from " + from[:len(from)-1] + "0 to " + tail,
				"link events/a idle: glob, from " + idle + " to " + idle,
				"link later idle: explicit, from -1 to -1",
			},
		} {
			var got []string
			for d, err := range h.Host().Details(t.Context(), id) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %s %s: %s", d.Kind, d.ID, d.State, d.Text))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%v:\n%s\nwant\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if h.Host().IsLive(id) {
				t.Errorf("%v is in memory", id)
			}
		}
	})
}
