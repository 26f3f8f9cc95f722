// Package randtest has the parts of tests with random programs that do not depend on the instructions of the programs: the
// report of a run, draws by weight, two clients, and the tests themselves.
package randtest

import (
	"errors"
	"fmt"
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
}

// Clear begins a new run.
func (r *Report) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.steps, r.programs, r.faults = 0, 0, nil, nil
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
	return errors.New(strings.Join(append(append(r.faults, "the programs:"), r.programs...), "\n"))
}
