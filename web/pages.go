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

// Questions are what the page suggests to ask the agents of a class, by its name.
type Questions map[string][]string

// pageFacts is what the page is told of the host that serves it.
type pageFacts struct {
	// Process is another one in the next process.
	Process string      `json:"process"`
	Agents  string      `json:"agents"` // what the paths of agents begin with
	Classes []pageClass `json:"classes"`
	// Operator says that /v1 is there too, Kill that /v1/kill is, and Supervised that the process is started
	// again when it was killed.
	Operator   bool `json:"operator,omitempty"`
	Kill       bool `json:"kill,omitempty"`
	Supervised bool `json:"supervised,omitempty"`
	// Ticket opens one WebSocket at the path that the page has asked for, on a listener that wants tokens.
	Ticket string `json:"ticket,omitempty"`
}

// pageClass is a class that the page can show.
type pageClass struct {
	Name      string   `json:"name"`
	URL       string   `json:"url,omitempty"` // as it is in the paths of agents; none if it is no agent
	Chat      bool     `json:"chat,omitempty"`
	Questions []string `json:"questions,omitempty"`
}

// pages serves the page. Its files are the same for everybody, and need no token; what it then asks for does.
type pages struct {
	facts   pageFacts
	tickets *tickets            // nil: the listener wants no tokens
	files   map[string]pageFile // by their paths in URLs
}

type pageFile struct {
	name, tag string
	data      []byte
}

// newPages makes the page of a listener. Facts are its own, but for the classes and the process.
func newPages(classes []dohost.Class, facts pageFacts, questions Questions) *pages {
	facts.Process = ulid.Make().String()
	facts.Classes = []pageClass{}
	for _, c := range classes {
		of := pageClass{Name: c.Name(), Chat: c.Speaks("chat"), Questions: questions[c.Name()]}
		if c.Speaks("agent") {
			of.URL = dohost.Kebab(c.Name())
		}
		if of.Chat || facts.Operator {
			facts.Classes = append(facts.Classes, of)
		}
	}
	return &pages{facts: facts, files: pageFiles(page.Files)}
}

func pageFiles(fsys fs.FS) map[string]pageFile {
	files := map[string]pageFile{}
	names, _ := fs.Glob(fsys, "*.*") // the pattern is good
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

// pagePolicy lets the page load what this listener serves, and nothing else; nobody may show it in a frame.
const pagePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; object-src 'none'"

// before serves the page's files, and has next do the rest.
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

// hostPath is where the page asks for its facts.
const hostPath = "/page/host.json"

// socketParam is the member of the query of hostPath by which the page asks for a ticket: the path of a socket.
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

// isVisit says that somebody opens the page, perhaps by a link: of what another origin may do that is all.
func isVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Origin") == "" &&
		strings.EqualFold(r.Header.Get("Sec-Fetch-Dest"), "document")
}
