package recovery

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dohost/dohost/ledger"
)

// The kinds of lines in the book.
const (
	begun   = 'b' // the start of a step
	effect  = 'e' // the outside effect of a step
	unknown = 'u' // the report of an unknown outcome of the effect
	acked   = 'a' // the acknowledgement of a durable step
)

// lineFormat is the form of a line: its kind, the worker, and the number of the step.
const lineFormat = "%c %s %d\n"

// The names in a directory.
const (
	bookFile    = "book"
	storeFolder = "store"
)

// book is a file outside of the store for the workers of one process. Its lines outlive the process.
type book struct {
	f        *os.File
	pause    time.Duration // between two steps of a worker
	stopped  bool          // workers take no further step
	bank     *bank         // of the effects; nil if steps are no operations
	mu       sync.Mutex    // guards the following
	messages *json.Encoder // to the parent; nil in a host that is not a child
	err      error
}

func openBook(dir string) (*book, error) {
	f, err := os.OpenFile(filepath.Join(dir, bookFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &book{f: f}, nil
}

// write adds a line, in one piece.
func (b *book) write(kind rune, name string, step int) error {
	_, err := fmt.Fprintf(b.f, lineFormat, kind, name, step)
	return err
}

// acknowledge records the release of a step's output, and keeps an error for the parent.
func (b *book) acknowledge(name string, step int) {
	if err := b.write(acked, name, step); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}
}

// send sends a message to the parent.
func (b *book) send(n message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.messages != nil && b.err == nil {
		b.err = b.messages.Encode(n)
	}
	return b.err
}

// Cost is the cost of the ends of incarnations.
type Cost struct {
	Ends        int   // of the process
	Steps       int64 // durable ones
	Redelivered int64 // events that began more than once
	Repeated    int64 // outside effects that occurred again
	Lost        int64 // acknowledged steps that are gone
	Doubled     int64 // steps that were acknowledged twice, or have no effect
	Replayed    int64 // bytes of the log that all the next processes read
	// Policy is that of the steps as operations of package ledger; zero if they are none. Then Unknown counts the outcomes that
	// were reported as unknown, and FalseUnknown those of them that had no effect until the report.
	Policy                ledger.Policy
	Unknown, FalseUnknown int64
}

// wrong returns an error if a promise was broken.
func (b *Cost) wrong() error {
	switch {
	case b.Lost+b.Doubled > 0:
		return fmt.Errorf("%d steps were lost and %d doubled", b.Lost, b.Doubled)
	case b.Repeated > 0 && (b.Policy == ledger.PolicyAtMostOnce || b.Policy == ledger.PolicyReconcile):
		return fmt.Errorf("%d effects were repeated with the policy %v", b.Repeated, b.Policy)
	}
	return nil
}

// entry is a step of an object.
type entry struct {
	name string
	step int
}

// account reads the book of a directory and compares it with the objects' steps.
func account(dir string, steps map[string]int) (b Cost, err error) {
	f, err := os.Open(filepath.Join(dir, bookFile))
	if err != nil {
		return b, err
	}
	defer f.Close()
	seen := map[rune]map[entry]int64{begun: {}, effect: {}, unknown: {}, acked: {}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kind rune
		var e entry
		if _, err := fmt.Sscanf(lines.Text(), "%c %s %d", &kind, &e.name, &e.step); err != nil || seen[kind] == nil {
			return b, fmt.Errorf("line of the book %q: %v", lines.Text(), err)
		}
		seen[kind][e]++
		if kind != unknown {
			continue
		}
		b.Unknown++
		if seen[effect][e] == 0 { // lines have the order of their events
			b.FalseUnknown++
		}
	}
	for e, n := range seen[begun] {
		b.Redelivered += n - 1
		if e.step > steps[e.name]+1 {
			b.Lost++ // the step before it is gone
		}
	}
	for _, n := range seen[effect] {
		b.Repeated += n - 1
	}
	for e, n := range seen[acked] {
		b.Doubled += n - 1
		if e.step > steps[e.name] {
			b.Lost++
		}
	}
	for name, n := range steps {
		b.Steps += int64(n)
		for step := 1; step <= n; step++ {
			if seen[effect][entry{name, step}] == 0 {
				b.Doubled++
			}
		}
	}
	return b, lines.Err()
}
