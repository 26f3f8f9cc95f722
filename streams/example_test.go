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

// byUser lets each user write the streams below the user's name, and read all.
func byUser(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
	user, _, ok := r.Request.BasicAuth() // of a server that has checked the password
	switch {
	case !ok:
		return dohost.Access{}, dohost.ErrUnauthenticated
	case strings.HasPrefix(r.ID.Name, user+"/"):
		return dohost.Access{Identity: user, Rights: dohost.ReadWrite}, nil
	}
	return dohost.Access{Identity: user, Rights: dohost.ReadOnly}, nil
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
