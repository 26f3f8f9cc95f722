package cli

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// command runs a command line and returns its standard error.
func command(t *testing.T, args ...string) (stderr string, status int) {
	t.Helper()
	var err strings.Builder
	status = App{}.run(t.Context(), args, stdio{strings.NewReader(""), io.Discard, &err})
	return err.String(), status
}

// The error of a request to a wrong server names the server.
func TestClientReportsServerThatIsNoAdminListener(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	answer := func(media string, status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // the test below finds a missing answer
		}
	}
	for _, tt := range []struct {
		handler http.HandlerFunc
		command []string
		want    string
	}{
		{answer("text/html", 404, "<h1>not found"), []string{"ls"}, "the server there answered 404 Not Found"},
		{answer("application/json", 404, `{"message": "Not Found"}`), []string{"show", "a/b"}, "the server there answered 404 Not Found"},
		{answer("text/html", 200, "<h1>welcome"), []string{"pins", "a/b"}, `the server there sends the content type "text/html"`},
		{answer("text/html", 200, "<h1>welcome"), []string{"export", "a/b"}, `the server there sends the content type "text/html"`},
		{answer("application/json", 200, "welcome"), []string{"evict", "a/b"}, "invalid character 'w' looking for beginning of value"},
	} {
		s := httptest.NewServer(tt.handler)
		at := strings.TrimPrefix(s.URL, "http://")
		stderr, status := command(t, append(tt.command, "--admin", at)...)
		if want := "dohost: no dohost admin listener answers at " + at + ": " + tt.want + "\n"; stderr != want || status != 1 {
			t.Errorf("%v said %q with status %d, want %q", tt.command, stderr, status, want)
		}
		s.Close()
	}
}

func TestClientReportsServerWithoutHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// The answer comes after the request: a client that is answered before it has asked reports another error.
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = io.WriteString(c, "220 mail\r\n") // the test below finds a missing answer
			_ = c.Close()
		}
	}()
	stderr, status := command(t, "ls", "--admin", l.Addr().String())
	if want := "dohost: no dohost admin listener answers at " + l.Addr().String() + ": "; !strings.HasPrefix(stderr, want) || status != 1 {
		t.Errorf("said %q with status %d, want %q", stderr, status, want)
	}
	_ = l.Close()
	<-done
}
