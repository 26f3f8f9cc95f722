package recovery

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Kinds of lines in the ledger.
const (
	begun  = 'b' // a run
	effect = 'e' // of a step on the world outside
	acked  = 'a' // a step, after it was durable
)

// What lies in a directory.
const (
	ledgerFile  = "ledger"
	storeFolder = "store"
)

// ledger is the world outside of the store, as the workers of one process see it. What
// was written to it outlives the process.
type ledger struct {
	f     *os.File
	pause time.Duration // between two steps of a worker
	over  bool          // no worker goes on
	mu    sync.Mutex    // guards what follows
	tell  *json.Encoder // to the parent; nil in a host that is not a child
	err   error
}

func openLedger(dir string) (*ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &ledger{f: f}, nil
}

// write adds a line, in one piece.
func (l *ledger) write(kind rune, name string, step int) error {
	_, err := fmt.Fprintf(l.f, "%c %s %d\n", kind, name, step)
	return err
}

// acknowledge notes that a step has left, and keeps the error for the parent.
func (l *ledger) acknowledge(name string, step int) {
	if err := l.write(acked, name, step); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
	}
}

// news tells the parent something.
func (l *ledger) news(n news) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tell != nil && l.err == nil {
		l.err = l.tell.Encode(n)
	}
	return l.err
}

// Bill is what ends of incarnations cost.
type Bill struct {
	Ends        int   // of the process
	Steps       int64 // that are durable
	Redelivered int64 // events that had begun and began again
	Repeated    int64 // effects on the world outside that were had again
	Lost        int64 // steps that were acknowledged and are gone
	Doubled     int64 // steps that were acknowledged twice, or are there without their effect
	Replayed    int64 // bytes of the log that the next process read, in all
}

// entry is a step of an object.
type entry struct {
	name string
	step int
}

// account reads the ledger of a directory and compares it with the steps that the objects
// have.
func account(dir string, steps map[string]int) (b Bill, err error) {
	f, err := os.Open(filepath.Join(dir, ledgerFile))
	if err != nil {
		return b, err
	}
	defer f.Close()
	seen := map[rune]map[entry]int64{begun: {}, effect: {}, acked: {}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kind rune
		var e entry
		if _, err := fmt.Sscanf(lines.Text(), "%c %s %d", &kind, &e.name, &e.step); err != nil || seen[kind] == nil {
			return b, fmt.Errorf("ledger line %q: %v", lines.Text(), err)
		}
		seen[kind][e]++
	}
	for e, n := range seen[begun] {
		b.Redelivered += n - 1
		if e.step > steps[e.name]+1 {
			b.Lost++ // it began where nobody has arrived
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
