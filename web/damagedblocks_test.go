package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

// TestObjectListSkipsDamagedBlock flips one bit of the only table of a store with 200 objects.
func TestObjectListSkipsDamagedBlock(t *testing.T) {
	const objects = 200
	dir := t.TempDir()
	class := dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil }, nil)
	open := func() *dohost.Host {
		h, err := dohost.Open(dir, nil, class)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
	h := open()
	for i := range objects {
		if err := testObjects.Get(h, fmt.Sprintf("n%03d", i)).Do(t.Context(), func(ctx context.Context, x *testObject) error {
			return dohost.Put(ctx, x.st.Storage(), "k", fmt.Sprintf("%0500d", i))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), open().Close()); err != nil { // the second flushes the log
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	b, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.WriteFile(tables[0], b, 0o600); err != nil {
		t.Fatal(err)
	}

	admin := web.Admin(open(), nil)
	list := func(query string) (l adminapi.ObjectList) {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/objects"+query, nil))
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		return l
	}
	all := list("")
	if n := len(all.Objects); n < objects/2 || n == objects || all.Objects[n-1].ID != "thing/n199" || len(all.Damaged) != 1 {
		t.Errorf("%d objects up to %s, damaged %q", n, all.Objects[n-1].ID, all.Damaged)
	}
	paged, blocks := 0, map[string]bool{}
	for query := "?class=thing&limit=7"; query != ""; {
		page := list(query)
		paged += len(page.Objects)
		for _, block := range page.Damaged {
			blocks[block] = true
		}
		query = ""
		if page.Next != "" {
			query = "?class=thing&limit=7&after=" + page.Next
		}
	}
	if paged != len(all.Objects) || len(blocks) != 1 {
		t.Errorf("in pages: %d objects, damaged %v; want %d and one block", paged, blocks, len(all.Objects))
	}
}
