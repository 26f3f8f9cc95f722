package agent

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/dohost/dohost"
)

// The names of work in positions are a part of the identity of operations, and so of the format on disk.

// workName returns a name of the user as a part of the name of work.
func workName(s string) string {
	if s == "" || strings.ContainsAny(s, "/\"") {
		return strconv.Quote(s)
	}
	return s
}

// work returns the name of the fiber in positions. A fiber that OnInterrupted has resumed has the name of the interrupted fiber. A
// fiber of RunFiber in durable work has the name of that work in its own.
func (r *fiberRow) work() string { return cmp.Or(r.Work, "fiber/"+r.ID) }

// position returns the position where the fiber continues if the row stays as it is.
func (r *fiberRow) position() *dohost.WorkPosition { return fixedPosition(r.work(), r.Saved) }

// fixedPosition returns a position with a number that does not change.
func fixedPosition(work string, number uint64) *dohost.WorkPosition {
	return dohost.NewWorkPosition(work, func(context.Context) (uint64, error) { return number, nil })
}

// number returns the number of the fiber's checkpoints. It reads the row, since the rollback of a Transaction may undo a
// SetCheckpoint. The row of a fiber that was cancelled may be gone.
func (f *fiberCall) number(ctx context.Context) (uint64, error) {
	row, ok, err := get(ctx, f.fibers.rows, &fiberRows, f.id)
	if ok {
		f.saved = row.Saved
	}
	return f.saved, err
}

// position returns the position of a run of the schedule.
func (j *scheduleRow) position() *dohost.WorkPosition {
	return fixedPosition("schedule/"+j.ID, uint64(j.Due.UnixNano()))
}

// position returns the position of a run of the item. Two items may have the same ID, one after the other, but not the same
// payload. A dead letter that was a schedule keeps the position of that schedule.
func (it *item) position() *dohost.WorkPosition {
	if it.Scheduled != 0 {
		return fixedPosition("schedule/"+it.ID, uint64(it.Scheduled))
	}
	return fixedPosition("queue/"+workName(it.ID)+"/"+it.Payload, 0)
}

// workStep is work within other work, which repeats it.
type workStep struct {
	of              *dohost.WorkPosition
	name            string
	number, ordinal uint64
	work            string // the name of the inner work; empty if there is no outer work
}

// nextStep returns the next step of the work that runs with ctx.
func nextStep(ctx context.Context, name string) (s workStep, err error) {
	s = workStep{of: dohost.WorkPositionOf(ctx), name: name}
	if s.of.Name() == "" {
		return s, nil
	}
	if s.number, s.ordinal, err = s.of.Next(ctx, name); err != nil {
		return s, err
	}
	s.work = fmt.Sprintf("%s/%d/%d/%s", s.of.Name(), s.number, s.ordinal, name)
	return s, nil
}

// pass records that the step has succeeded.
func (s *workStep) pass() {
	if s.work != "" {
		s.of.Pass(s.name, s.number, s.ordinal)
	}
}
