package streams

import (
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// TestForksAreRefused sends requests for forks: with each set of the protocol's fields, for streams that exist and for one that does not, of
// such sources, with data and without. The server writes no record for them, wakes no object, and leaves all streams as they were.
func TestForksAreRefused(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "source", "data", plain)
		serve(s, "PUT", "open", "other", plain)
		serve(s, "PUT", "closed", "", asJSON, closeIt)
		state := func() (list []string) {
			for _, path := range []string{"source", "open", "closed", "new"} {
				w := serve(s, "GET", path, "")
				list = append(list, path+": "+summary(w)+" "+w.Header().Get("Stream-Next-Offset"))
			}
			for id, err := range h.Host().Objects(t.Context(), string(Streams), "") {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, "stored: "+id.Name)
			}
			return list
		}
		before, offset := state(), serve(s, "HEAD", "source", "").Header().Get("Stream-Next-Offset")
		if err := h.Restart(); err != nil { // no object is in memory
			t.Fatal(err)
		}
		s = Server(h.Host(), nil)
		records := strings.Count(h.Log(), "durable")

		forms := 0
		for set := 1; set < 8; set++ {
			for _, source := range []string{"/v1/stream/source", "source", "/v1/stream/missing", ""} {
				for _, target := range []string{"new", "open", "closed", "source"} {
					for _, body := range []string{"", "more"} {
						fields := []string{plain}
						for i, field := range []string{"Stream-Forked-From: " + source, "Stream-Fork-Offset: " + offset, "Stream-Fork-Sub-Offset: 2"} {
							if set&(1<<i) != 0 {
								fields = append(fields, field)
							}
						}
						forms++
						w := serve(s, "PUT", target, body, fields...)
						if summary(w) != "501 not_implemented" || w.Header().Get("Location") != "" || w.Header().Get("Stream-Next-Offset") != "" {
							t.Errorf("PUT %s of %q with %q: %s, %v", target, body, fields, summary(w), w.Header())
						}
						if h.Host().IsLive(Streams.Get(h, target).ID()) || h.Host().IsLive(Streams.Get(h, "source").ID()) {
							t.Fatalf("PUT %s of %q with %q has woken an object", target, body, fields)
						}
					}
				}
			}
		}
		if n := strings.Count(h.Log(), "durable") - records; n != 0 || records == 0 || forms != 7*4*4*2 {
			t.Errorf("the server has written %d records for %d forms, and %d before", n, forms, records)
		}
		if after := state(); !slices.Equal(after, before) {
			t.Errorf("after the refusals:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	})
}

// TestForkFieldsOfOtherRequests has fields of forks in requests that create no stream: they have no effect.
func TestForkFieldsOfOtherRequests(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", "1", plain)
		for _, tt := range []struct{ method, body, want string }{
			{"POST", "2", "204"}, {"GET", "", "200 text/plain up-to-date: 12"}, {"HEAD", "", "200 text/plain"}, {"DELETE", "", "204"},
		} {
			w := serve(s, tt.method, "a", tt.body, plain, "Stream-Forked-From: /v1/stream/b", "Stream-Fork-Offset: -1", "Stream-Fork-Sub-Offset: 1")
			if summary(w) != tt.want {
				t.Errorf("%s: %s, want %s", tt.method, summary(w), tt.want)
			}
		}
	})
}
