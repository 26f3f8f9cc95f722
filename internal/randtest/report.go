// Package randtest has the parts of tests with random programs that do not depend on the instructions of the programs: the
// report of a run, draws by weight, concurrent callers, faults of the host, the tests themselves, and the shortening of a program
// that fails, which it prints as a test.
package randtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxFaults bounds the faults that a Report keeps.
const maxFaults = 5

// Report is the report of a run: its programs, its faults and its extent. Its methods may be called from any goroutine,
// also with locks held: they call nothing.
type Report struct {
	mu       sync.Mutex
	next     int      // the number of the last program
	steps    int      // instructions that were compared
	programs []string // that were sent, as Go expressions
	faults   []string
	kind     string // the format of the first fault
}

// Clear begins a new run.
func (r *Report) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.steps, r.programs, r.faults, r.kind = 0, 0, nil, nil, ""
}

// Next returns the number of a new program.
func (r *Report) Next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return r.next
}

// Compared counts an instruction that was compared with the model.
func (r *Report) Compared() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
}

// Steps returns the number of instructions that were compared.
func (r *Report) Steps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps
}

// Sent records a program that is sent.
func (r *Report) Sent(program string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs = append(r.programs, program)
}

// Faultf records a fault.
func (r *Report) Faultf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) == 0 {
		r.kind = format
	}
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fmt.Sprintf(format, args...))
	}
}

// Err returns the faults, and the programs of the run; nil if there is no fault.
func (r *Report) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) == 0 {
		return nil
	}
	return &faulty{r.kind, strings.Join(slices.Concat(r.faults, []string{"the programs:"}, r.programs), "\n")}
}

// faulty is the error of a Report.
type faulty struct{ kind, text string }

// Error returns the faults and the programs.
func (e *faulty) Error() string { return e.text }

// Is reports whether the first faults of two reports are of the same kind.
func (e *faulty) Is(target error) bool {
	other, ok := errors.AsType[*faulty](target)
	return ok && other.kind == e.kind
}
