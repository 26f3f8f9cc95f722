package cli

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dohost/dohost"
)

// certificate writes the certificate of package httptest, and returns a server with a client that trusts it.
func certificate(t *testing.T) (cert, key string, s *httptest.Server) {
	s = httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	pair := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, s
}

func TestServeWithTLS(t *testing.T) {
	cert, key, trusting := certificate(t)
	cmd := serveCmd{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", TimeScale: 1, Log: "off",
		accessFlags: accessFlags{TLSCert: cert, TLSKey: key},
	}
	var out strings.Builder
	s := &server{std: stdio{strings.NewReader(""), &out, io.Discard}, log: slog.New(slog.DiscardHandler), served: make(chan error, 2)}
	if err := s.open(t.Context(), &cmd, []dohost.Class{adderClass()}); err != nil {
		t.Fatal(err)
	}
	s.start()
	for at, path := range map[string]string{s.publicAt.Addr().String(): "/page/host.json", s.adminAt.Addr().String(): "/healthz"} {
		res, err := trusting.Client().Get("https://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close() // its content does not matter
		if res.StatusCode != 200 || res.ProtoMajor != 1 || !strings.Contains(out.String(), "https://"+at) {
			t.Errorf("%s: %s by %s, printed\n%s", path, res.Status, res.Proto, out.String())
		}
	}
	trusting.Client().CloseIdleConnections()
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if err := s.wait(t.Context(), signals); err != nil {
		t.Error(err)
	}
}

func TestServeRefusesTokensInClearText(t *testing.T) {
	cert, key, _ := certificate(t)
	for _, tt := range []struct {
		flags accessFlags
		addr  string
		want  string
	}{
		{accessFlags{TokenFile: "t"}, "0.0.0.0:1", "would get tokens in clear text"},
		{accessFlags{TokenFile: "t", Insecure: true}, "0.0.0.0:1", "would get tokens in clear text"},
		{accessFlags{TokenFile: "t", BehindProxy: true}, "0.0.0.0:1", ""},
		{accessFlags{TokenFile: "t", TLSCert: cert, TLSKey: key}, "0.0.0.0:1", ""},
		{accessFlags{TokenFile: "t"}, "127.0.0.1:1", ""},
		{accessFlags{TLSCert: cert, TLSKey: key}, "0.0.0.0:1", "give --token-file, or --insecure"},
		{accessFlags{BehindProxy: true}, "0.0.0.0:1", "give --token-file, or --insecure"},
		{accessFlags{Insecure: true}, "0.0.0.0:1", ""},
	} {
		err := tt.flags.allow("--listen", tt.addr, "--token-file", tt.flags.TokenFile)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v at %s: %v, want %q", tt.flags, tt.addr, err, tt.want)
		}
	}
}

func TestServeRefusesOriginsThatArePatterns(t *testing.T) {
	c := serveCmd{Data: "x", Listen: "x", Admin: "x", TimeScale: 1, Origin: []string{"https://*.example.com"}}
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "without a pattern") {
		t.Error(err)
	}
	c.Origin = []string{"https://app.example.com"}
	if err := c.check(); err != nil {
		t.Error(err)
	}
}

func TestAnnouncerBoundsAnUnendedLine(t *testing.T) {
	a := &addressReader{w: io.Discard}
	for range 100 {
		_, _ = a.Write([]byte(strings.Repeat("x", 1000)))
	}
	if len(a.line) > 2*maxAddressLine {
		t.Errorf("%d bytes are kept", len(a.line))
	}
	_, _ = a.Write([]byte("\nobjects https://127.0.0.1:1\nadmin   unix:x.sock\n"))
	if a.at != (addresses{"127.0.0.1:1", "unix:x.sock"}) {
		t.Errorf("%+v", a.at)
	}
}

// TestErrorTextsDefaultToLoopbackWithoutTokens has listeners that send the texts of all errors, and listeners that do
// not.
func TestErrorTextsDefaultToLoopbackWithoutTokens(t *testing.T) {
	for _, tt := range []struct {
		flags  accessFlags
		listen string
		want   bool
	}{
		{accessFlags{ErrorTexts: "auto"}, "127.0.0.1:0", true},
		{accessFlags{ErrorTexts: "auto"}, "0.0.0.0:0", false},
		{accessFlags{ErrorTexts: "auto", TokenFile: "t"}, "127.0.0.1:0", false},
		{accessFlags{ErrorTexts: "auto", BehindProxy: true}, "127.0.0.1:0", false},
		{accessFlags{ErrorTexts: "off"}, "127.0.0.1:0", false},
		{accessFlags{ErrorTexts: "on", TokenFile: "t"}, "0.0.0.0:0", true},
	} {
		if got := tt.flags.errorTexts(tt.listen); got != tt.want {
			t.Errorf("%+v on %s: %t", tt.flags, tt.listen, got)
		}
	}
}
