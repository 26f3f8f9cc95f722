package web_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// manyClasses is classes with many methods each, which all fail because the disk is full.
func manyClasses(n int) []dohost.Class {
	var classes []dohost.Class
	for i := range n {
		var entries []dohost.Entry[testObject]
		for j := range n {
			entries = append(entries, dohost.Expose(fmt.Sprintf("m%02d", j), dohost.Bare(func(*testObject, context.Context) error {
				return fmt.Errorf("put: %w", dohost.ErrNoSpace)
			})))
		}
		classes = append(classes, dohost.Bind(dohost.Namespace[testObject](fmt.Sprintf("c%02d", i)),
			func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil }, nil, entries...))
	}
	return classes
}

func openManyClasses(t *testing.T, n int, o dohost.Options) *dohost.Host {
	t.Helper()
	h, err := dohost.Open(t.TempDir(), &o, manyClasses(n)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestErrorMessagesListClassesOnlyForOperators(t *testing.T) {
	h := openManyClasses(t, 22, dohost.Options{})
	pub, adm := start(t, handler(h, nil)), start(t, web.Admin(h, nil))
	e, _ := pub.wantError("POST", "/objects/none/a/m00", "", 404, "no_class")
	if !strings.HasSuffix(e.Message, `no such class: "none"`) {
		t.Errorf("message %s", e.Message)
	}
	e, _ = pub.wantError("POST", "/objects/c00/a/none", "", 404, "no_method")
	if !strings.HasSuffix(e.Message, `no such method: "none" of class "c00"`) || e.Ran != "no" {
		t.Errorf("message %s", e.Message)
	}
	e, _ = adm.wantError("GET", "/v1/objects/none/a", "", 404, "no_class")
	if !strings.HasSuffix(e.Message, `"none"; the classes are: c00, `+list("c", 1, 20)+" and 2 more") {
		t.Errorf("message %s", e.Message)
	}
}

func list(prefix string, from, to int) string {
	var names []string
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("%s%02d", prefix, i))
	}
	return strings.Join(names, ", ")
}

func TestMetricsCountNoSpaceEvents(t *testing.T) {
	m := web.NewMetrics()
	h := openManyClasses(t, 1, dohost.Options{Listener: m.Listener()})
	pub, adm := start(t, handler(h, nil)), start(t, web.Admin(h, &web.AdminOptions{Metrics: m}))
	pub.wantError("POST", "/objects/c00/a/m00", "", 507, "no_space")
	for { // an event ends a little after it has answered
		text, err := io.ReadAll(adm.do("GET", "/metrics", "").Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), `dohost_events_total{class="c00",result="no_space"} 1`) {
			return
		}
		if strings.Contains(string(text), `result="error"`) {
			t.Fatalf("counted as\n%s", text)
		}
	}
}

func TestBackupFailureRemovesCreatedFolders(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	h.Close()
	dir := t.TempDir()
	made, own := filepath.Join(dir, "made", "for", "it"), filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{made, own} {
		if res := s.do("POST", "/v1/backup", fmt.Sprintf(`{"dir":%q}`, target)); res.StatusCode == 200 {
			t.Errorf("a closed host was copied to %s", target)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "own" {
		t.Errorf("left: %v, %v", entries, err)
	}
}
