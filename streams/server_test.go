package streams

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// serve answers a request for the stream at path, which may have a query. The fields of the header are "Name: value".
func serve(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	return serveContext(context.Background(), h, method, path, body, header...)
}

func serveContext(ctx context.Context, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "/v1/stream/"+path, strings.NewReader(body))
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	plain   = "Content-Type: text/plain"
	asJSON  = "Content-Type: application/json"
	closeIt = "Stream-Closed: true"
	ofP     = "Producer-Id: p"
)

// TestRequests sends requests to one stream after another. A response is its status, some fields of its header, and its body.
func TestRequests(t *testing.T) {
	type request struct {
		send   string // method, path, and body after the second space
		header []string
		want   string // status, code of an error, or fields and body
	}
	for what, list := range map[string][]request{
		"text": {
			{"PUT a", []string{plain}, "201 text/plain"},
			{"PUT a", []string{"Content-Type: Text/Plain; charset=utf-8"}, "200 text/plain"},
			{"PUT a", []string{asJSON}, "409 other_properties"},
			{"PUT a", []string{plain, closeIt}, "409 other_properties"},
			{"POST a one", []string{plain}, "204"},
			{"POST a  two", []string{plain}, "204"},
			{"POST a {}", []string{asJSON}, "409 other_content_type"},
			{"POST a x", nil, "400 bad_header"},
			{"POST a \xe2\x82", []string{plain}, "400 bad_text"},
			{"PUT b \xff", []string{plain}, "400 bad_text"},
			{"POST a", []string{plain}, "400 no_body"},
			{"GET a", nil, "200 text/plain up-to-date: one two"},
			{"GET a?offset=-1&x=y", nil, "200 text/plain up-to-date: one two"},
			{"GET a?offset=now", nil, "200 text/plain up-to-date"},
			{"HEAD a", nil, "200 text/plain"},
			{"DELETE a", nil, "204"},
			{"DELETE a", nil, "404 no_stream"},
			{"GET a", nil, "404 no_stream"},
			{"HEAD a", nil, "404 no_stream"},
			{"GET a?offset=now&live=sse", nil, "404 no_stream"},
			{"POST a x", []string{plain}, "404 no_stream"},
		},
		"JSON": {
			{"PUT a [ ]", []string{asJSON}, "201 application/json"},
			{"GET a", nil, "200 application/json up-to-date: []"},
			{"POST a {\"a\": [1, 2]}", []string{asJSON}, "204"},
			{"POST a [1, [2, 3]]", []string{asJSON}, "204"},
			{"POST a []", []string{asJSON}, "400 no_messages"},
			{"POST a {", []string{asJSON}, "400 bad_json"},
			{"POST a [1,]", []string{asJSON}, "400 bad_json"},
			{"GET a", nil, "200 application/json up-to-date: [{\"a\":[1,2]},1,[2,3]]"},
			{"GET a?offset=now", nil, "200 application/json up-to-date: []"},
		},
		"closed": {
			{"PUT a", []string{plain}, "201 text/plain"},
			{"POST a", []string{closeIt, asJSON}, "204 closed"},
			{"POST a", []string{"Stream-Closed: TRUE"}, "204 closed"},
			{"POST a 1", []string{closeIt, asJSON}, "409 closed closed_stream"},
			{"POST a x", []string{plain}, "409 closed closed_stream"},
			{"PUT a", []string{plain}, "409 other_properties"},
			{"PUT a", []string{plain, closeIt}, "200 text/plain closed"},
			{"GET a", nil, "200 text/plain closed up-to-date"},
			{"GET a?offset=-1&live=long-poll", nil, "204 closed up-to-date"},
			{"GET a?offset=now&live=sse", nil, `200 text/event-stream: event: control data:{"streamNextOffset":"#","upToDate":true,"streamClosed":true}`},
			{"HEAD a", nil, "200 text/plain closed"},
			{"PUT b all", []string{closeIt}, "201 application/octet-stream closed"},
			{"GET b", nil, "200 application/octet-stream closed up-to-date: all"},
		},
		"producer": {
			{"PUT a", []string{plain}, "201 text/plain"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0"}, "400 bad_header"},
			{"POST a x", []string{plain, "Producer-Id: ", "Producer-Epoch: 0", "Producer-Seq: 0"}, "400 bad_header"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 1e3"}, "400 bad_header"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 9007199254740992"}, "400 bad_header"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: -1"}, "400 bad_header"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 1"}, "409 expected 0 received 1 seq_gap"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 0"}, "200 epoch 0 seq 0"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 0"}, "204 epoch 0 seq 0"},
			{"POST a y", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 1"}, "200 epoch 0 seq 1"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 0"}, "204 epoch 0 seq 1"},
			{"POST a z", []string{plain, ofP, "Producer-Epoch: 1", "Producer-Seq: 0"}, "200 epoch 1 seq 0"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 2"}, "403 epoch 1 stale_epoch"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 2", "Producer-Seq: 2"}, "400 epoch_not_at_zero"},
			{"POST a", []string{closeIt, ofP, "Producer-Epoch: 1", "Producer-Seq: 1"}, "204 closed epoch 1 seq 1"},
			{"POST a", []string{closeIt, ofP, "Producer-Epoch: 1", "Producer-Seq: 1"}, "204 closed epoch 1 seq 1"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 1", "Producer-Seq: 2"}, "409 closed closed_stream"},
			{"POST a x", []string{plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 2"}, "403 closed epoch 1 stale_epoch"},
			{"GET a", nil, "200 text/plain closed up-to-date: xyz"},
		},
		"Stream-Seq": {
			{"PUT a", []string{plain}, "201 text/plain"},
			{"POST a x", []string{plain, "Stream-Seq: 2"}, "204"},
			{"POST a x", []string{plain, "Stream-Seq: 10"}, "409 seq_too_low"},
			{"POST a x", []string{plain, "Stream-Seq: " + strings.Repeat("3", 257)}, "400 bad_header"},
			{"POST a x", []string{plain, "Stream-Seq: 3"}, "204"},
			{"GET a", nil, "200 text/plain up-to-date: xx"},
		},
		"expiry": {
			{"PUT a", []string{plain, "Stream-TTL: 60"}, "201 text/plain"},
			{"PUT a", []string{plain, "Stream-TTL: 60"}, "200 text/plain"},
			{"PUT a", []string{plain, "Stream-TTL: 61"}, "409 other_properties"},
			{"HEAD a", nil, "200 text/plain ttl 60"},
			{"PUT b", []string{plain, "Stream-Expires-At: 2100-01-01T02:00:00+02:00"}, "201 text/plain"},
			{"PUT b", []string{plain, "Stream-Expires-At: 2100-01-01T00:00:00.000Z"}, "200 text/plain"},
			{"HEAD b", nil, "200 text/plain expires 2100-01-01T00:00:00Z"},
			{"PUT c", []string{"Stream-TTL: 060"}, "400 bad_header"},
			{"PUT c", []string{"Stream-TTL: "}, "400 bad_header"},
			{"PUT c", []string{"Stream-TTL: 99999999999"}, "400 bad_header"},
			{"PUT c", []string{"Stream-TTL: 1", "Stream-Expires-At: 2100-01-01T00:00:00Z"}, "400 bad_header"},
			{"PUT c", []string{"Stream-Expires-At: 0001-01-01T00:00:00Z"}, "400 bad_header"},
			{"PUT c", []string{"Stream-Expires-At: 9999-12-31T23:59:59-23:59"}, "400 bad_header"},
			{"PUT c", []string{"Stream-Expires-At: 1971-01-01T00:00:00Z"}, "201 application/octet-stream"},
			{"GET c", nil, "404 no_stream"},
		},
		"refused": {
			{"PUT a", []string{"Content-Type: text"}, "400 bad_header"},
			{"PUT a", []string{"Content-Type: text/" + strings.Repeat("x", 256)}, "400 bad_header"},
			{"GET a", nil, "404 no_stream"},
			{"PATCH a", nil, "405 method_not_allowed"},
			{"OPTIONS a", nil, "405 method_not_allowed"},
			{"GET a//b", nil, "400 bad_path"},
			{"GET a/../b", nil, "400 bad_path"},
			{"GET a/", nil, "400 bad_path"},
			{"GET ", nil, "400 bad_path"},
			{"GET " + strings.Repeat("x", 1025), nil, "400 bad_name"},
			{"GET a%00", nil, "400 bad_name"},
			{"PUT a/b%2Fc", nil, "201 application/octet-stream"},
			{"HEAD a/b/c", nil, "200 application/octet-stream"},
			{"GET a/b/c?offset=", nil, "400 bad_query"},
			{"GET a/b/c?offset=1&offset=2", nil, "400 bad_query"},
			{"GET a/b/c?offset=%zz", nil, "400 bad_query"},
			{"GET a/b/c?offset=12", nil, "400 bad_query"},
			{"GET a/b/c?offset=11111100000000_10", nil, "410 gone"},
			{"GET a/b/c?live=sse", nil, "400 bad_query"},
			{"GET a/b/c?offset=-1&live=maybe", nil, "400 bad_query"},
			{"POST a/b/c " + strings.Repeat("x", maxBody+1), []string{plain}, "413 too_large"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			run(t, func(t *testing.T, h *dohosttest.Host) {
				s := Server(h.Host(), nil)
				for _, r := range list {
					parts := append(strings.SplitN(r.send, " ", 3), "")
					w := serve(s, parts[0], parts[1], parts[2], r.header...)
					if got := summary(w); got != r.want {
						t.Errorf("%.80s %q:\n got %s\nwant %s", r.send, r.header, got, r.want)
					}
				}
			})
		})
	}
}

// summary is a response in one line.
func summary(w *httptest.ResponseRecorder) string {
	h := w.Header()
	parts := []string{fmt.Sprint(w.Code)}
	add := func(name, field string) {
		if v := h.Get(field); v != "" {
			parts = append(parts, strings.TrimSpace(name+" "+strings.TrimPrefix(v, "true")))
		}
	}
	if w.Code < 300 {
		add("", "Content-Type")
	}
	add("closed", "Stream-Closed")
	add("up-to-date", "Stream-Up-To-Date")
	add("epoch", "Producer-Epoch")
	add("seq", "Producer-Seq")
	add("expected", "Producer-Expected-Seq")
	add("received", "Producer-Received-Seq")
	add("ttl", "Stream-TTL")
	add("expires", "Stream-Expires-At")
	body := w.Body.String()
	if w.Code >= 300 {
		_, code, _ := strings.Cut(body, `"code":"`)
		code, _, _ = strings.Cut(code, `"`)
		return strings.Join(append(parts, code), " ")
	}
	if body == "" {
		return strings.Join(parts, " ")
	}
	if _, rest, ok := strings.Cut(body, `"streamNextOffset":"`); ok {
		offset, _, _ := strings.Cut(rest, `"`)
		body = strings.Join(strings.Fields(strings.Replace(body, offset, "#", 1)), " ")
	}
	return strings.Join(parts, " ") + ": " + body
}

// TestPagesContinue reads a stream of large chunks page by page, and each page again with its entity tag.
func TestPagesContinue(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), &ServerOptions{Public: true})
		data := strings.Repeat("0123456789abcdef", chunkSize/16*2+1)
		serve(s, "PUT", "a", data, plain, closeIt)
		var got strings.Builder
		pages := 0
		for offset := "-1"; ; pages++ {
			w := serve(s, "GET", "a?offset="+offset, "")
			again := serve(s, "GET", "a?offset="+offset, "", `If-None-Match: "x", W/`+w.Header().Get("ETag"))
			if w.Code != 200 || again.Code != 304 || again.Body.Len() > 0 {
				t.Fatalf("page %d: status %d, and again %d", pages, w.Code, again.Code)
			}
			end := w.Header().Get("Stream-Closed") == "true"
			if end != (w.Header().Get("Stream-Up-To-Date") == "true") || end != strings.HasSuffix(w.Header().Get("ETag"), `:c"`) {
				t.Errorf("page %d: %v", pages, w.Header())
			}
			if c := w.Header().Get("Cache-Control"); c != "public, max-age=60, stale-while-revalidate=300" {
				t.Errorf("page %d: Cache-Control %q", pages, c)
			}
			got.Write(w.Body.Bytes())
			if next := w.Header().Get("Stream-Next-Offset"); next <= offset {
				t.Fatalf("page %d: %q follows %q", pages, next, offset)
			} else if offset = next; end {
				break
			}
		}
		if got.String() != data || pages != 2 {
			t.Errorf("%d bytes in %d more pages, want %d in 2", got.Len(), pages, len(data))
		}
	})
}

// TestAuthorizeGuardsStreams has callers that may do nothing, read, and write.
func TestAuthorizeGuardsStreams(t *testing.T) {
	rights := map[string]dohost.Rights{"": dohost.RightsNone, "r": dohost.RightsReadOnly, "w": dohost.RightsReadWrite}
	classes := Classes(&ClassOptions{Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Rights: rights[r.Request.Header.Get("Authorization")]}, nil
	}})
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		for _, tt := range []struct {
			method, as string
			want       int
		}{
			{"PUT", "", 403}, {"PUT", "r", 403}, {"PUT", "w", 201},
			{"POST", "r", 403}, {"POST", "w", 204}, {"GET", "", 403}, {"GET", "r", 200}, {"HEAD", "r", 200},
			{"DELETE", "r", 403}, {"DELETE", "w", 204},
		} {
			if w := serve(s, tt.method, "a", "x", plain, "Authorization: "+tt.as); w.Code != tt.want {
				t.Errorf("%s as %q: status %d, want %d: %s", tt.method, tt.as, w.Code, tt.want, w.Body)
			}
		}
	})
}

// TestCORSAnswersPreflights has a server for the pages of all origins.
func TestCORSAnswersPreflights(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		w := serve(Server(h.Host(), &ServerOptions{CORS: true}), "OPTIONS", "a", "")
		if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("status %d, %v", w.Code, w.Header())
		}
	})
}

func TestCursorGrows(t *testing.T) {
	now := time.Unix(cursorEpoch, 0).Add(1000*cursorInterval + time.Second)
	for _, tt := range []struct{ last, least, most int64 }{{0, 1000, 1000}, {999, 1000, 1000}, {1000, 1001, 1180}, {5000, 5001, 5180}, {maxCursor, maxCursor + 1, maxCursor + 180}} {
		for range 100 {
			if got := cursorAfter(tt.last, now); got < tt.least || got > tt.most {
				t.Errorf("after %d: %d, want %d to %d", tt.last, got, tt.least, tt.most)
			}
		}
	}
}

// TestPagesOfOtherOriginsCannotWrite has requests by a browser with the cookie of a user. Programs send no such fields.
func TestPagesOfOtherOriginsCannotWrite(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		closed := Server(h.Host(), &ServerOptions{Origins: []string{"https://app.example", "no origin"}})
		open := Server(h.Host(), &ServerOptions{CORS: true, Public: true})
		serve(closed, "PUT", "a", "", plain)
		for _, tt := range []struct {
			s              http.Handler
			method, origin string
			want           int
		}{
			{closed, "POST", "https://evil.example", 403}, {closed, "DELETE", "https://evil.example", 403},
			{closed, "POST", "https://app.example", 204}, {closed, "GET", "https://evil.example", 200},
			{open, "POST", "https://evil.example", 204},
		} {
			w := serve(tt.s, tt.method, "a", "x", plain, "Origin: "+tt.origin, "Sec-Fetch-Site: cross-site", "Cookie: session=1")
			policy, vary := "same-origin", "Authorization, Cookie"
			if tt.s == open {
				policy, vary = "cross-origin", ""
			}
			if w.Code != tt.want || w.Header().Get("Cross-Origin-Resource-Policy") != policy || w.Header().Get("Vary") != vary {
				t.Errorf("%s of %s: %s, want %d; %v", tt.method, tt.origin, summary(w), tt.want, w.Header())
			}
		}
	})
}

// TestRetryAfterOfFullLimits has no place for a live reader.
func TestRetryAfterOfFullLimits(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), &ServerOptions{MaxWaiting: -1}).(*server)
		if w := serve(s, "GET", "a?offset=-1&live=sse", ""); w.Code != 429 || w.Header().Get("Retry-After") != "5" {
			t.Errorf("live readers: %s, %v", summary(w), w.Header())
		}
		w := httptest.NewRecorder()
		s.answerAppend(w, &appendRequest{}, &appendResult{Outcome: tooManyProducers})
		if w.Code != 429 || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("producers: %s, %v", summary(w), w.Header())
		}
	})
}

// TestClosingAgainWritesNothing counts the records of a stream that is closed five more times.
func TestClosingAgainWritesNothing(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", "", plain, closeIt)
		before := strings.Count(h.Log(), "durable")
		for range 5 {
			if w := serve(s, "POST", "a", "", closeIt); summary(w) != "204 closed" {
				t.Error(summary(w))
			}
		}
		if n := strings.Count(h.Log(), "durable") - before; n != 0 || before == 0 {
			t.Errorf("%d records after %d", n, before)
		}
	})
}

// TestPrefixNeedsNoSlashes creates a stream below prefixes.
func TestPrefixNeedsNoSlashes(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		for prefix, path := range map[string]string{"": "/v1/stream/a", "x": "/x/b", "/x/y": "/x/y/c%20", "/": "/d", "z/": "/z/e"} {
			w := httptest.NewRecorder()
			Server(h.Host(), &ServerOptions{Prefix: prefix}).ServeHTTP(w, httptest.NewRequest("PUT", path, nil))
			if w.Code != 201 || w.Header().Get("Location") != "http://example.com"+path {
				t.Errorf("prefix %q: %s, Location %q", prefix, summary(w), w.Header().Get("Location"))
			}
		}
	})
}
