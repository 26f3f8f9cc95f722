package pool

import (
	"fmt"
	"slices"
	"time"
)

// taskEdges has the states that may follow each state of a task: see the table in the package comment.
var taskEdges = map[Status][]Status{
	StatusPending:      {StatusAcknowledged, StatusFailed},
	StatusAcknowledged: {StatusPending, StatusRunning, StatusFailed},
	StatusRunning:      {StatusPending, StatusDone, StatusFailed},
	StatusDone:         {},
	StatusFailed:       {StatusPending},
}

// enter changes the state of a task; no other code does. In builds that check invariants it panics if the table has no such edge.
func (t *taskRow) enter(s Status, now time.Time) {
	if strict && !slices.Contains(taskEdges[t.Status], s) {
		panic(fmt.Sprintf("pool: no transition of task %s from %s to %s", t.ID, t.Status, s))
	}
	t.Status, t.Since = s, now
}
