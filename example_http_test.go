package dohost_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/dohost/dohost"
)

// story is an object that streams its lines one by one.
type story struct {
	store *dohost.Storage
	more  chan string
}

const stories dohost.Namespace[story] = "story"

// stream stores each line before it flushes it: a line that a client has seen is on disk.
func (s *story) stream(w http.ResponseWriter, r *http.Request) {
	for n := 0; ; n++ {
		line, ok, err := dohost.Recv(r.Context(), s.more)
		if err != nil || !ok {
			return
		}
		if err := dohost.Put(r.Context(), s.store, fmt.Sprint("line/", n), line); err != nil {
			return // of an incarnation that has ended, or a full disk
		}
		fmt.Fprintln(w, line)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return // the client has gone
		}
	}
}

// A handler streams: each flushed piece leaves once all earlier writes are durable, while the handler continues.
func ExampleHandlers_onHTTP() {
	more := make(chan string)
	class := dohost.Bind(stories, func(_ context.Context, st *dohost.State) (*story, error) {
		return &story{st.Storage(), more}, nil
	}, &dohost.Handlers[story]{OnHTTP: (*story).stream})
	withHost(func(ctx context.Context, h *dohost.Host) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeObject(w, r, stories.Get(h, "night").ID())
		}))
		defer server.Close()
		go func() { more <- "It was dark." }()
		resp, err := server.Client().Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		fmt.Println(lines.Scan(), lines.Text())
		more <- "It was stormy."
		fmt.Println(lines.Scan(), lines.Text())
		close(more)
		fmt.Println(lines.Scan(), lines.Err())
	}, class)
	// Output:
	// true It was dark.
	// true It was stormy.
	// false <nil>
}
