package bank_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/orders/bank"
)

// open opens a bank that writes no log.
func open(t *testing.T, path string, keys bool) *bank.Bank {
	t.Helper()
	b := &bank.Bank{Keys: keys}
	if err := b.Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func body(key string, cents int) string {
	return fmt.Sprintf(`{"key":%q,"order":"7","cents":%d}`, key, cents)
}

// charge returns the status and the answer of a charge.
func charge(b *bank.Bank, key string, cents int) string {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("POST", "/charges", strings.NewReader(body(key, cents))))
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
}

func wantBook(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%v, the book is\n%swant\n%s", err, got, want)
	}
}

const (
	charged = `{"receipt":"r_1","key":"a","order":"7","cents":4200}`
	again   = `{"receipt":"r_2","key":"a","order":"7","cents":4200}`
)

func TestKeyThatIsRepeated(t *testing.T) {
	for keys, second := range map[bool]string{true: charged, false: again} {
		path := filepath.Join(t.TempDir(), "book")
		for _, want := range []string{charged, second} {
			if got := charge(open(t, path, keys), "a", 4200); got != "200 "+want {
				t.Errorf("keys %v: the answer is %s, want %s", keys, got, want)
			}
		}
		want := charged + "\n"
		if !keys {
			want += again + "\n"
		}
		wantBook(t, path, want)
	}
}

func TestKeyThatIsDeclinedStaysDeclined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	for _, cents := range []int{bank.Limit + 1, 4200} {
		if got := charge(open(t, path, true), "a", cents); got != fmt.Sprintf(`402 {"key":"a","order":"7","cents":%d}`, bank.Limit+1) {
			t.Errorf("%d cents: %s", cents, got)
		}
	}
}

// The last line is not complete: the bank was killed before its charge.
func TestLineThatIsIncompleteIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	if err := os.WriteFile(path, []byte(charged+"\n"+`{"receipt":"r_2","key":"b"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := charge(open(t, path, false), "a", 4200); got != "200 "+again {
		t.Errorf("the answer is %s", got)
	}
	wantBook(t, path, charged+"\n"+again+"\n")
}

// A client sends its request only after a later client has asked for the charge. The answer has the charge.
func TestConnectionsAreServedInOrder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- open(t, filepath.Join(t.TempDir(), "book"), false).Serve(l) }()
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	fmt.Fprint(second, "GET /charges?order=7 HTTP/1.1\r\nHost: bank\r\n\r\n")
	fmt.Fprintf(first, "POST /charges HTTP/1.1\r\nHost: bank\r\nContent-Length: %d\r\n\r\n%s", len(body("a", 4200)), body("a", 4200))
	for conn, want := range map[net.Conn]string{first: charged, second: "[" + charged + "]"} {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(res.Body); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%v, the answer is %s, want %s", err, got, want)
		}
	}
	_ = l.Close()
	<-served
}
