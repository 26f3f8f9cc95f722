package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web/page"
)

// Questions are the page's suggestions for the agents of a class, by its name.
type Questions map[string][]string

// pageFacts describes the host to its page.
type pageFacts struct {
	// Process differs in each process.
	Process string      `json:"process"`
	Agents  string      `json:"agents"` // prefix of the agents' paths
	Classes []pageClass `json:"classes"`
	// Operator is set if the listener serves /v1, Kill if it serves /v1/kill, and Supervised if the process is
	// restarted after a kill.
	Operator   bool `json:"operator,omitempty"`
	Kill       bool `json:"kill,omitempty"`
	Supervised bool `json:"supervised,omitempty"`
	// Ticket opens one WebSocket at the path in the page's request, on a listener that needs tokens.
	Ticket string `json:"ticket,omitempty"`
}

// pageClass is a class that the page can show.
type pageClass struct {
	Name      string   `json:"name"`
	URL       string   `json:"url,omitempty"` // in the paths of agents; empty if the class is no agent
	Chat      bool     `json:"chat,omitempty"`
	Pool      bool     `json:"pool,omitempty"`
	Questions []string `json:"questions,omitempty"`
}

// pages serves the page. Its files are the same for every client, and need no token; the page's requests do.
type pages struct {
	facts   pageFacts
	tickets *tickets            // nil: the listener needs no tokens
	files   map[string]pageFile // by their paths in URLs
}

type pageFile struct {
	name, tag string
	data      []byte
}

// newPages makes the page of a listener. It adds the classes and the process to the listener's facts.
func newPages(classes []dohost.Class, facts pageFacts, questions Questions) *pages {
	facts.Process = ulid.Make().String()
	facts.Classes = []pageClass{}
	for _, c := range classes {
		of := pageClass{Name: c.Name(), Chat: c.HasProtocol("chat"), Pool: c.HasProtocol("pool"), Questions: questions[c.Name()]}
		if c.HasProtocol("agent") {
			of.URL = dohost.URLName(c.Name())
		}
		if of.Chat || facts.Operator {
			facts.Classes = append(facts.Classes, of)
		}
	}
	return &pages{facts: facts, files: pageFiles(page.Files)}
}

func pageFiles(fsys fs.FS) map[string]pageFile {
	files := map[string]pageFile{}
	names, _ := fs.Glob(fsys, "*.*") // the pattern is valid
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			continue // embedded files can be read
		}
		sum := sha256.Sum256(data)
		at := "/page/" + name
		if name == "index.html" {
			at = "/"
		}
		files[at] = pageFile{name, `"` + hex.EncodeToString(sum[:8]) + `"`, data}
	}
	return files
}

// pagePolicy lets the page load only files of this listener, and forbids other pages to frame it.
const pagePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; object-src 'none'"

// before serves the page's files, and calls next for other requests.
func (p *pages) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := p.files[r.URL.Path]
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", f.tag)
		h.Set("Content-Type", contentTypes[path.Ext(f.name)])
		http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(f.data))
	})
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// hostPath is the path of the page's facts.
const hostPath = "/page/host.json"

// socketParam is the parameter of hostPath with the path of a socket, for a ticket.
const socketParam = "socket"

// ServeHTTP answers with the page's facts, and with a ticket for a socket if the page asks for one.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	facts := p.facts
	if path := r.URL.Query().Get(socketParam); path != "" && p.tickets != nil {
		token, _ := TokenIdentity(r.Context())
		facts.Ticket = p.tickets.issue(path, token, time.Now())
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, facts)
}

// isVisit reports whether a browser opens the page, perhaps by a link: other requests of other origins are refused.
func isVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Origin") == "" &&
		strings.EqualFold(r.Header.Get("Sec-Fetch-Dest"), "document")
}
