//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const todoPage = `<!doctype html>
<html lang="en">
  <meta charset="utf-8">
  <title>loading</title>
  <link rel="icon" href="data:,">
  <h1>Rows of an object</h1>
  <p>All: <span id="all"></span></p>
  <p>Above nine: <span id="large"></span></p>
  <script type="module" src="page.js"></script>
</html>
`

// waitFor is JavaScript whose promise resolves when an element has a text.
func waitFor(element, text string) string {
	return fmt.Sprintf(`new Promise((resolve, reject) => {
		const look = (left) => {
			const now = document.querySelector(%[1]q)?.textContent;
			if (now === %[2]q) resolve();
			else if (left === 0) reject(new Error(%[1]q + " is " + now + ", want " + %[2]q));
			else setTimeout(look, 50, left - 1);
		};
		look(600);
	})`, element, text)
}

// TestStreamDBInBrowser has two tabs with a published StreamDB and a live query, while the server is killed, incarnations of the object end, and
// the object leaves memory. A tab shows its own change immediately, also while there is no server, and the other one shows it after the server
// has it.
func TestStreamDBInBrowser(t *testing.T) {
	s := startStreams(t, "./server", evictions(t, "0.05")...)
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "esbuild"), "js/streams/todo.mjs", "--bundle",
		"--format=esm", "--target=es2022", "--log-level=error", `--define:process.env.NODE_ENV="production"`, "--outfile="+filepath.Join(folder, "page.js"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(folder, "index.html"), []byte(todoPage), 0o644); err != nil {
		t.Fatal(err)
	}
	// The page and the object have one origin, as with a proxy. The server keeps its address when it is killed.
	site := http.NewServeMux()
	site.Handle("/", http.FileServer(http.Dir(folder)))
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.at})
	proxy.ErrorLog = log.New(io.Discard, "", 0) // there is no server for a moment
	site.Handle("/objects/", proxy)
	pages := httptest.NewServer(site)
	defer pages.Close()
	defer pages.CloseClientConnections()
	c := startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	object := url.QueryEscape(pages.URL + "/objects/Todo/tabs")
	tabs := [2]*tab{}
	for i := range tabs {
		var err error
		if tabs[i], err = c.open(pages.URL + "/?object=" + object); err != nil {
			t.Fatal(err)
		}
		tabs[i].must(t, waitFor("title", "ready"))
	}
	both := func(element, text string) {
		t.Helper()
		for i := range tabs {
			tabs[i].must(t, waitFor(element, text))
		}
	}
	tabs[0].must(t, `put("a", 1)`)
	tabs[1].must(t, `Promise.all([put("b", 20), put("c", 3)])`)
	both("#all", "a=1 b=20 c=3")
	both("#large", "b=20")

	s.kill()
	tabs[0].must(t, `void (window.pending = put("a", 11))`)
	tabs[0].must(t, waitFor("#large", "a=11 b=20")) // before the server has it
	tabs[1].must(t, waitFor("#all", "a=1 b=20 c=3"))
	s.start()
	tabs[0].must(t, `pending`)
	both("#large", "a=11 b=20")

	tabs[1].must(t, fmt.Sprintf(`new Promise((resolve) => setTimeout(resolve, %d))`, 3*idleAfter.Milliseconds())) // the object leaves memory
	tabs[1].must(t, `drop("b")`)
	both("#all", "a=11 c=3")
	for n := range 3 {
		s.kill()
		tabs[n%2].must(t, fmt.Sprintf(`void (window.pending = put("d%d", %d))`, n, 10*n))
		s.start()
		tabs[n%2].must(t, `pending`)
	}
	both("#all", "a=11 c=3 d0=0 d1=10 d2=20")
	both("#large", "a=11 d1=10 d2=20")
	if *shots != "" {
		if err := tabs[1].picture(filepath.Join(*shots, "streamdb.png")); err != nil {
			t.Error(err)
		}
	}
}

// must runs JavaScript in the page.
func (p *tab) must(t *testing.T, code string) {
	t.Helper()
	if err := p.run(code); err != nil {
		t.Fatal(err)
	}
}
