package objectstore

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/dohost/dohost/internal/guard"
)

// archiveFaults converts a panic or runtime.Goexit of a method of an archive to an error of one line, and logs the stack. The callers
// repeat a call that has failed, so a stack is logged again only after a call for the same object has returned, or if another
// place in the code fails.
type archiveFaults struct {
	log *slog.Logger

	mu   sync.Mutex              // guards last
	last map[string]archiveFault // the last fault of each method that fails
}

// archiveFault is a call of a method of an archive that did not return.
type archiveFault struct{ object, place string }

func newArchiveFaults(log *slog.Logger) *archiveFaults {
	return &archiveFaults{log: log, last: map[string]archiveFault{}}
}

// ended is called after each call of a method for an object, which is empty for a list. The error is nil if the call has returned.
func (a *archiveFaults) ended(method, object string, f *guard.Failure) error {
	if f == nil {
		a.returned(method, object)
		return nil
	}
	if a.isNew(method, archiveFault{object, placeOf(f.Stack)}) {
		a.log.Error("a method of the archive did not return", "method", method, "cause", f, "stack", string(f.Stack))
	}
	return fmt.Errorf("the archive's method %s: %w", method, f)
}

func (a *archiveFaults) returned(method, object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, failing := a.last[method]; failing && last.object == object {
		delete(a.last, method)
	}
}

// isNew records a fault, and reports whether the one before was at another place, or has ended.
func (a *archiveFaults) isNew(method string, f archiveFault) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, failing := a.last[method]
	a.last[method] = f
	return !failing || last.place != f.place
}

// placeOf returns the lines of a stack that name a place in the code. The other lines have the numbers of goroutines and addresses.
func placeOf(stack []byte) string {
	var place strings.Builder
	for line := range strings.Lines(string(stack)) {
		if strings.HasPrefix(line, "\t") {
			place.WriteString(line)
		}
	}
	return place.String()
}
