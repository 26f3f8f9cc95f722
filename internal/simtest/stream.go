package simtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// lineStore is an object that stores each line of a request, and confirms it in a piece of the
// response before it reads the next line.
type lineStore struct{ st *dohost.State }

var lineStores dohost.Namespace[lineStore] = "line-store"

const (
	streamRequests = 2
	streamLines    = 2
)

func (t *lineStore) serve(w http.ResponseWriter, r *http.Request) {
	if err := t.copy(w, r); err != nil {
		panic(http.ErrAbortHandler) // otherwise the response would seem complete
	}
}

func (t *lineStore) copy(w http.ResponseWriter, r *http.Request) error {
	ctx, s := r.Context(), t.st.Storage()
	in := bufio.NewReader(r.Body)
	for {
		text, err := in.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		n, _, err := dohost.Get[int](ctx, s, "n")
		if err != nil {
			return err
		}
		err = errors.Join(dohost.Put(ctx, s, "n", n+1), dohost.Put(ctx, s, fmt.Sprintf("line/%d", n+1), text))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d %s", n+1, text)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
}

// lines returns the stored lines, from line 1.
func (t *lineStore) lines(ctx context.Context, _ none) ([]string, error) {
	n, _, err := dohost.Get[int](ctx, t.st.Storage(), "n")
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range n {
		text, ok, err := dohost.Get[string](ctx, t.st.Storage(), fmt.Sprintf("line/%d", i+1))
		if err != nil || !ok {
			return nil, fmt.Errorf("line %d of %d is missing, %w", i+1, n, err)
		}
		found = append(found, text)
	}
	return found, nil
}

// streamRun has the responses that a client received.
type streamRun struct {
	pieces []string
	whole  []bool // by request
}

func requestLines(k int) (lines []string) {
	for i := range streamLines {
		lines = append(lines, fmt.Sprintf("request %d line %d\n", k, i))
	}
	return lines
}

func (s *streamRun) run(ctx context.Context, h *dohosttest.Host) error {
	for k := range streamRequests {
		pieces, whole, err := request(ctx, h, lineStores.Get(h, "a").ID(), requestLines(k))
		if err != nil {
			return err
		}
		s.pieces, s.whole = append(s.pieces, pieces...), append(s.whole, whole)
		if whole && len(pieces) != streamLines {
			return fmt.Errorf("request %d: a whole response has the pieces %q", k, pieces)
		}
		// Received lines must be stored now, and not only in the end.
		found, err := retryCall(ctx, lineStores.Get(h, "a"), (*lineStore).lines, none{})
		if err = errors.Join(err, s.compare(found)); err != nil {
			return err
		}
		h.Advance(time.Second)
	}
	return nil
}

// compare searches for every received piece, and for lines that are repeated or out of order.
func (s *streamRun) compare(found []string) (err error) {
	for _, p := range s.pieces {
		var n int
		if _, err := fmt.Sscanf(p, "%d ", &n); err != nil || n < 1 || n > len(found) || p != fmt.Sprintf("%d %s", n, found[n-1]) {
			return fmt.Errorf("a client saw %q, the object has %q", p, found)
		}
	}
	var want []string
	for k, whole := range s.whole {
		lines := requestLines(k)
		kept := 0
		for _, text := range found {
			if strings.HasPrefix(text, fmt.Sprintf("request %d ", k)) {
				kept++
			}
		}
		if whole && kept < streamLines {
			err = errors.Join(err, fmt.Errorf("request %d was answered, %d of its lines are there", k, kept))
		}
		want = append(want, lines[:min(kept, streamLines)]...)
	}
	return errors.Join(err, differ("lines", found, want))
}

// newStream has requests with bodies and responses in pieces.
func newStream() dohosttest.Scenario {
	s := new(streamRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(lineStores, func(_ context.Context, st *dohost.State) (*lineStore, error) {
			return &lineStore{st}, nil
		}, &dohost.Handlers[lineStore]{OnHTTP: (*lineStore).serve})},
		Places: objectPlaces,
		Reset:  func() { *s = streamRun{} },
		Run:    s.run,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			found, err := dohost.Call(ctx, lineStores.Get(h, "a"), (*lineStore).lines, none{})
			return errors.Join(err, s.compare(found))
		},
	}
}
