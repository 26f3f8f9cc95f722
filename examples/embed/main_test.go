package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

func ExampleHandler() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, Class())
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(Handler(h))
	defer server.Close()
	for _, path := range []string{"/", "/me/draft", "/agents/note/ada/x", "//agents/note/ada/x", "/agents/note/bob/x", "/objects/note/ada/x"} {
		req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			log.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "user", Value: "ada"})
		res, err := http.DefaultTransport.RoundTrip(req) // without following redirects
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			body = nil
		}
		fmt.Println(strings.TrimSpace(fmt.Sprint(path, " ", res.StatusCode, " ", string(body))))
	}
	// Output:
	// / 200 home
	// /me/draft 200 /draft of ada for ada
	// /agents/note/ada/x 200 /x of ada for ada
	// //agents/note/ada/x 200 /x of ada for ada
	// /agents/note/bob/x 403
	// /objects/note/ada/x 404
}

// The documents contain this program unchanged.
func TestDocsContainEmbedProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"// Handler serves the application", "// run serves until"} {
		_, code, _ := strings.Cut(string(source), start)
		code, _, _ = strings.Cut(start+code, "\n}\n")
		if !strings.Contains(string(page), code+"\n}\n") {
			t.Errorf("docs/embedding.md does not show the code that begins with %q", start)
		}
	}
}
