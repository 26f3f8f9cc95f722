package web

import (
	"net/http"
	"strconv"
	"strings"
)

// Cells are the cells of a node, for [AdminCells]. Its functions are called concurrently.
type Cells struct {
	// Status returns the state of the cluster as the node knows it, to be encoded as JSON.
	Status func() any
	// Admin returns the [Admin] handler of a cell that this node serves, or nil.
	Admin func(cell int) http.Handler
}

// AdminCells serves the tools of an operator of a node with several cells:
//
//	GET /healthz, /readyz     of the node
//	GET /cells                the cells, their nodes, and the members of the cluster
//	ANY /cells/{cell}/...     the paths of [Admin] except its page, for a cell that this node serves
//
// It has the checks and the times of Admin. Of the options it uses Ready, Hosts and Tokens; the handlers of cells have their own, and check again.
func AdminCells(c *Cells, o *AdminOptions) http.Handler {
	a := &admin{}
	if o != nil {
		a.opts = *o
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", a.nodeReady)
	mux.HandleFunc("GET /cells", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, c.Status())
	})
	operators := authorize(a.opts.Tokens, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if number, _, ok := cellOf(r); ok {
			c.refuse(w, r, number)
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			noRoute(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return BoundBodies(nil, a.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if number, path, ok := cellOf(r); ok && !isPage(path) { // bypasses the mux, which would clean the names in the path
			if h := c.admin(number); h != nil {
				http.StripPrefix(cellPrefix+number, h).ServeHTTP(w, r)
				return
			}
		}
		operators.ServeHTTP(w, r)
	})))
}

func (a *admin) nodeReady(w http.ResponseWriter, _ *http.Request) {
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			refuse(w, http.StatusServiceUnavailable, "not_ready", err.Error())
			return
		}
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// cellPrefix begins the paths of cells.
const cellPrefix = "/cells/"

// cellOf returns the part of a path that should be the number of a cell, and the path on its Admin handler.
func cellOf(r *http.Request) (number, path string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, cellPrefix)
	number, _, inside := strings.Cut(rest, "/")
	return number, rest[len(number):], ok && inside
}

// isPage reports whether a path is that of a file of the page. Those need no token, and name one another by absolute paths, without the cell.
func isPage(path string) bool {
	return path == "/" || path != hostPath && strings.HasPrefix(path, "/page/")
}

// admin returns the handler of a cell that this node serves, or nil.
func (c *Cells) admin(number string) http.Handler {
	if n, err := strconv.Atoi(number); err == nil {
		return c.Admin(n)
	}
	return nil
}

// refuse answers a request for a cell that this node does not serve, or for its page.
func (c *Cells) refuse(w http.ResponseWriter, r *http.Request, number string) {
	if c.admin(number) != nil {
		noRoute(w, r)
		return
	}
	refuse(w, http.StatusNotFound, "no_cell", "this node does not serve cell "+strconv.Quote(number)+": GET /cells lists the nodes of the cells")
}
