package web_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/web"
)

// A server of counters, and a client that calls one.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, counter.Class())
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(web.Handler(h, &web.Options{Classes: []string{"counter"}}))
	defer server.Close()

	for range 2 {
		resp, err := http.Post(server.URL+"/objects/counter/alice/add", "application/json", strings.NewReader("2"))
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %s %v\n", resp.StatusCode, strings.TrimSpace(string(body)), err)
	}
	// Output:
	// 200 2 <nil>
	// 200 4 <nil>
}
