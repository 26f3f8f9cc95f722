package web_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/dohost/dohost/web"
)

func TestAdminAuditLogsOperatorRequests(t *testing.T) {
	h := openClasses(t, chatProtocolClass, echoClass, testClass())
	var buf bytes.Buffer
	s := start(t, web.Admin(h, &web.AdminOptions{Logger: slog.New(slog.NewTextHandler(&buf, nil)), Kill: func() error { return nil }}))
	for _, tt := range []struct{ method, path, logged string }{
		{"GET", "/v1/objects", ""},
		{"GET", "/v1/objects/thing/a", ""},
		{"GET", "/metrics", ""},
		{"GET", "/v1/objects/thing/a/export", "method=GET path=/v1/objects/thing/a/export"},
		{"GET", "/v1/objects/thing/a/details?kind=fiber", "method=GET path=/v1/objects/thing/a/details query=\"kind=fiber\""},
		{"POST", "/v1/objects/thing/a/evict?mode=crash", "method=POST path=/v1/objects/thing/a/evict query=\"mode=crash\""},
		{"DELETE", "/v1/objects/thing/a/alarm", "method=DELETE path=/v1/objects/thing/a/alarm"},
		{"POST", "/v1/backup", "method=POST path=/v1/backup"},
		{"POST", "/v1/kill", "method=POST path=/v1/kill"},
		{"GET", "/debug/pprof/heap", "method=GET path=/debug/pprof/heap"},
		{"GET", "/agents/big-mirror/a/get-messages", "method=GET path=/agents/big-mirror/a/get-messages"},
	} {
		buf.Reset()
		s.do(tt.method, tt.path, "")
		line, _, _ := strings.Cut(buf.String(), "\n")
		if (line == "") != (tt.logged == "") || !strings.Contains(line, tt.logged) || tt.logged != "" && !strings.Contains(line, "remote=127.0.0.1:") {
			t.Errorf("%s %s: logged %q, want %q", tt.method, tt.path, line, tt.logged)
		}
	}
}
