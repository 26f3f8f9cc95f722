package web_test

import (
	"context"
	"net/http"
	"os"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// unreadableError panics when a search for another error unwraps it.
type unreadableError struct{}

func (unreadableError) Error() string { return "unreadable" }
func (unreadableError) Unwrap() error { panic("no cause") }

// TestMethodErrorIsNotTakenForThatOfTheBody calls a method that returns the errors of a body that is too large or too
// slow, and an error that cannot be unwrapped. The connection stays.
func TestMethodErrorIsNotTakenForThatOfTheBody(t *testing.T) {
	for name, cause := range map[string]error{
		"slow": os.ErrDeadlineExceeded, "large": &http.MaxBytesError{Limit: 1}, "unreadable": unreadableError{},
	} {
		t.Run(name, func(t *testing.T) {
			class := dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil }, nil,
				dohost.Expose("return", dohost.Bare(func(*testObject, context.Context) error { return cause })))
			h, err := dohost.Open(t.TempDir(), nil, class)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			s := start(t, web.Handler(h, &web.Options{Classes: []string{"thing"}}))
			for range 2 {
				if _, res := s.wantError("POST", "/objects/thing/a/return", "", 500, "failed"); res.Close {
					t.Error("the connection is closed")
				}
			}
		})
	}
}
