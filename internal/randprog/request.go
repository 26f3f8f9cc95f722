package randprog

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/dohost/dohost/dohosttest"
)

// onHTTP executes the program of a request. The response has a line for each Flush, and ends with the answer; a
// request for a socket has no response.
func (m *machine) onHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(request)
	x := &execution{machine: m, e: m.w.begin(m.st.ID().Name, q.Name, m.incarnation, nil)}
	if q.Socket {
		x.handshake = &handshake{q.Name, w, r}
	} else {
		x.response = w
	}
	answer, err := x.perform(r.Context(), q.Code)
	if err == nil && !q.Socket {
		fmt.Fprintf(w, "= %d\n", answer)
	}
}

// requestKey is the key of a request in the context of an HTTP request.
type requestKey struct{}

// flush sends a line with the number of the piece.
func (x *execution) flush() error {
	fmt.Fprintln(x.response, x.w.piece(x.e))
	return http.NewResponseController(x.response).Flush()
}

// response is the client's end of a response.
type response struct {
	w            *Observer
	object, name string
	header       http.Header
	text         string
}

// Header is part of http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader is part of http.ResponseWriter.
func (r *response) WriteHeader(int) {}

// Flush is part of http.Flusher.
func (r *response) Flush() {}

// Write receives a part of the response, and reports the lines in it.
func (r *response) Write(p []byte) (int, error) {
	r.text += string(p)
	for {
		line, rest, whole := strings.Cut(r.text, "\n")
		if !whole {
			return len(p), nil
		}
		r.text = rest
		var n int
		if _, err := fmt.Sscanf(line, "= %d", &n); err == nil {
			r.w.answered(r.object, r.name, n, nil)
		} else if _, err := fmt.Sscanf(line, "%d", &n); err == nil {
			r.w.pieceLeaves(n, r.name)
		}
	}
}

// SendHTTP is [Observer.Send] by an HTTP request.
func (w *Observer) SendHTTP(ctx context.Context, h *dohosttest.Host, k int, p Program) error {
	w.Sent(objectName(k) + ": " + p.String())
	q := request{Name: nameOf(p), Code: p.Code}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, requestKey{}, q), http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { // a response that was cut
				panic(p)
			}
		}()
		h.Host().ServeObject(&response{w: w, object: objectName(k), name: q.Name, header: http.Header{}}, r, machines.Get(h, objectName(k)).ID())
	}()
	return w.Err()
}
