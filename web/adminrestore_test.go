package web_test

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

// TestRestoreOverHTTP replaces an object of a host that ships, and of one that does not.
func TestRestoreOverHTTP(t *testing.T) {
	a, err := dohost.OpenDirArchive(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	h := open(t, &dohost.Options{Ship: a})
	s := start(t, web.Admin(h, nil))
	call(t, h, "thing/a", "put", `"x"`)
	for st := h.Stats().Ship; st.NeedsBase || st.Shipped == 0; st = h.Stats().Ship {
		call(t, h, "thing/a", "put", `"x"`)
	}
	call(t, h, "thing/a", "put", `"y"`)
	earlier, err := h.Bookmark()
	if err != nil {
		t.Fatal(err)
	}
	export := func() string {
		t.Helper()
		b, err := io.ReadAll(s.do("GET", "/v1/objects/thing/a/export", "").Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	then := export()
	call(t, h, "thing/a", "put", `"z"`)
	if then == export() {
		t.Error("the object has not changed")
	}
	done := getJSON[adminapi.ObjectRestored](s, "POST", "/v1/objects/thing/a/restore", fmt.Sprintf(`{"bookmark": %q}`, earlier))
	if done.Undo <= string(earlier) {
		t.Errorf("the undo of %s is %s", earlier, done.Undo)
	}
	if now := export(); now != then {
		t.Errorf("the restored object is %q, want %q", now, then)
	}
	const path = "/v1/objects/thing/a/restore"
	for _, body := range []string{"", "{}", "x", `{"bookmark": "x"}`, `{"record": -1}`} {
		s.wantError("POST", path, body, 400, "bad_argument")
	}
	s.wantError("POST", path, `{"record": 999999}`, 404, "not_archived")
	s.wantError("POST", path, fmt.Sprintf(`{"bookmark": %q}`, string(earlier[:17])+"00000001"+string(earlier[25:])), 409, "foreign_bookmark")
	s.wantError("POST", "/v1/objects/none/a/restore", `{"record": 1}`, 404, "no_class")
	other := start(t, web.Admin(open(t, nil), nil))
	other.wantError("POST", path, `{"record": 1}`, 409, "not_shipping")
}
