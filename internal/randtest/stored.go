package randtest

import "sync"

// StoredReport is the Report of programs whose model is a value in the storage of their object, so that the end of an incarnation drops a
// change of the model together with the change of the object.
type StoredReport struct {
	Report

	mu           sync.Mutex
	incarnations int
	acknowledged int            // the newest version of the model that something outside depends on
	tries        map[string]int // of instructions and tasks that fail
}

// Clear begins a new run.
func (r *StoredReport) Clear() {
	r.Report.Clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incarnations, r.acknowledged, r.tries = 0, 0, map[string]int{}
}

// Wake begins an incarnation that has found a version of the model, and returns its number.
func (r *StoredReport) Wake(serial int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incarnations++
	if serial < r.acknowledged {
		r.Faultf("incarnation %d finds version %d of the model, and %d was acknowledged", r.incarnations, serial, r.acknowledged)
	}
	return r.incarnations
}

// Incarnations returns the number of the last incarnation.
func (r *StoredReport) Incarnations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.incarnations
}

// Acknowledge records that something outside depends on a version of the model.
func (r *StoredReport) Acknowledge(serial int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acknowledged = max(r.acknowledged, serial)
}

// Try counts the tries of an instruction or a task that fails.
func (r *StoredReport) Try(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[name]++
	return r.tries[name]
}
