package streams_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
)

// A client creates a stream, appends to it, and reads it from the end of its first append.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, streams.Classes(nil)...)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(streams.Server(h, nil))
	defer server.Close()

	notes := server.URL + "/v1/stream/notes"
	send := func(method, url, body string) (next string) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(strings.TrimSpace(answer.Status + " " + string(text)))
		return answer.Header.Get("Stream-Next-Offset")
	}
	send(http.MethodPut, notes, "")
	first := send(http.MethodPost, notes, `[{"text": "hello"}]`)
	send(http.MethodPost, notes, `[{"text": "world"}]`)
	send(http.MethodGet, notes+"?offset="+first, "")
	// Output:
	// 201 Created
	// 204 No Content
	// 204 No Content
	// 200 OK [{"text":"world"}]
}

// byUser lets each user write the streams below the user's name, and read all.
func byUser(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
	user, _, ok := r.Request.BasicAuth() // of a server that has checked the password
	switch {
	case !ok:
		return dohost.Access{}, dohost.ErrUnauthenticated
	case strings.HasPrefix(r.ID.Name, user+"/"):
		return dohost.Access{Identity: user, Rights: dohost.RightsReadWrite}, nil
	}
	return dohost.Access{Identity: user, Rights: dohost.RightsReadOnly}, nil
}

// A user creates a stream, and another one reads it and cannot append.
func ExampleServer() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, streams.Classes(&streams.ClassOptions{Authorize: byUser})...)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := streams.Server(h, nil)

	send := func(user, method, body string) {
		r := httptest.NewRequest(method, "/v1/stream/ada/notes", strings.NewReader(body))
		r.SetBasicAuth(user, "")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		answer := w.Result()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		if answer.StatusCode >= http.StatusBadRequest {
			text = nil
		}
		fmt.Println(strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", string(text))))
	}
	send("ada", http.MethodPut, "")
	send("ada", http.MethodPost, `[{"text": "hello"}, {"text": "world"}]`)
	send("bob", http.MethodGet, "")
	send("bob", http.MethodPost, `{"text": "mine"}`)
	// Output:
	// 201
	// 204
	// 200 [{"text":"hello"},{"text":"world"}]
	// 403
}
