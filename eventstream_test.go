package dohost

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// brokenResponse is a response that cannot be written.
type brokenResponse struct{ *httptest.ResponseRecorder }

var errBroken = errors.New("the client is gone")

func (brokenResponse) Write([]byte) (int, error) { return 0, errBroken }

// TestWatchEventsReportFailedWrites sends the events that are not buffered to a client that is gone.
func TestWatchEventsReportFailedWrites(t *testing.T) {
	for _, kind := range []DeltaKind{DeltaReset, DeltaReady} {
		w := brokenResponse{httptest.NewRecorder()}
		e := &eventStream{w: w, rc: http.NewResponseController(w)}
		if err := e.send(Delta[any]{Kind: kind}); !errors.Is(err, errBroken) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}
