package socket

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/coder/websocket"
)

// hijacked is a response with a pipe as its connection.
type hijacked struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// TestHandshakeCheckMatchesTheLibrary compares the answers to good and bad handshakes:
// a request that passes the check must not be refused later, when the object has run.
func TestHandshakeCheckMatchesTheLibrary(t *testing.T) {
	origins := []string{"https://app.example", "*.example.org"}
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int // zero: accepted
	}{
		"good":                 {func(*http.Request) {}, 0},
		"list of tokens":       {func(r *http.Request) { r.Header.Set("Connection", "keep-alive,  upgrade") }, 0},
		"several lines":        {func(r *http.Request) { r.Header.Add("Connection", "close") }, 0},
		"capitals":             {func(r *http.Request) { r.Header.Set("Upgrade", "WebSocket") }, 0},
		"no connection":        {func(r *http.Request) { r.Header.Del("Connection") }, 426},
		"no upgrade":           {func(r *http.Request) { r.Header.Del("Upgrade") }, 426},
		"another upgrade":      {func(r *http.Request) { r.Header.Set("Upgrade", "h2c") }, 426},
		"HTTP/1.0":             {func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 1, 0 }, 426},
		"POST":                 {func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"no version":           {func(r *http.Request) { r.Header.Del("Sec-WebSocket-Version") }, 400},
		"old version":          {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") }, 400},
		"no key":               {func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }, 400},
		"two keys":             {func(r *http.Request) { r.Header.Add("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==") }, 400},
		"short key":            {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "dGhl") }, 400},
		"key with blanks":      {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", " dGhlIHNhbXBsZSBub25jZQ== ") }, 0},
		"own origin":           {func(r *http.Request) { r.Header.Set("Origin", "http://HOST.test") }, 0},
		"listed origin":        {func(r *http.Request) { r.Header.Set("Origin", "https://app.example") }, 0},
		"listed, other scheme": {func(r *http.Request) { r.Header.Set("Origin", "http://app.example") }, 403},
		"pattern":              {func(r *http.Request) { r.Header.Set("Origin", "http://a.example.org") }, 0},
		"other origin":         {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"null origin":          {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"empty origin":         {func(r *http.Request) { r.Header.Set("Origin", "") }, 0},
		"bad origin":           {func(r *http.Request) { r.Header.Set("Origin", "http://%zz") }, 403},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://host.test/", nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-WebSocket-Version", "13")
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			c.change(r)
			status := 0
			if refused := CheckHandshake(r, origins); refused != nil {
				w := httptest.NewRecorder()
				refused.Answer(w)
				if status = w.Code; status != refused.Status {
					t.Errorf("answered with %d, want %d", status, refused.Status)
				}
			}
			if status != c.status {
				t.Errorf("the check says %d, want %d", status, c.status)
			}
			client, server := net.Pipe()
			defer client.Close()
			go func() { _, _ = bufio.NewReader(client).ReadString(0) }()
			w := &hijacked{httptest.NewRecorder(), server}
			ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: origins})
			library := w.Code
			if err == nil {
				library = 0
				_ = ws.CloseNow()
			}
			if library != status {
				t.Errorf("the library says %d (%v), the check %d", library, err, status)
			}
		})
	}
}

// TestHandshakeErrorNamesSupportedVersions has the header that RFC 9110 or RFC 6455 requires with each status.
func TestHandshakeErrorNamesSupportedVersions(t *testing.T) {
	for status, want := range map[int]http.Header{
		426: {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
		405: {"Allow": {"GET"}},
		400: {"Sec-Websocket-Version": {"13"}},
		403: {},
	} {
		w := httptest.NewRecorder()
		(&HandshakeError{Status: status}).Answer(w)
		got := w.Header()
		got.Del("Content-Type")
		got.Del("X-Content-Type-Options")
		if w.Code != status || !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d: answered with %d, %v, want %v", status, w.Code, got, want)
		}
	}
}
