package cluster

import (
	"context"
	"errors"
	"slices"
)

// ErrConflict is an error of Table.Swap, to be wrapped: the plan has another revision.
var ErrConflict = errors.New("cluster: the plan has another revision")

// Snapshot is the content of a Table.
type Snapshot struct {
	Members  []Member
	Plan     Plan
	Revision uint64 // of the plan; 0 if there is none
}

// othersStay reports whether a member does not drain, apart from the node with this id.
func (s *Snapshot) othersStay(id string) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.ID != id && !slices.Contains(s.Plan.Draining, m.ID) })
}

// Table has the members of a cluster, and its plan, as one node reaches them. Its methods may be called from any goroutine.
//
// Data stays correct if a Table returns an old state or loses members. Only Swap must be atomic.
type Table interface {
	// Renew writes the record of the node, which expires after the time to live of the table. All calls have the same member. The record may
	// also be the lease of all logs that the node has acquired: see Options.Log. If it has expired, Renew writes it anew, and those leases
	// stay lost.
	Renew(ctx context.Context, m Member) error
	// Leave deletes the record of the node. It returns nil if there is none.
	Leave(ctx context.Context, id string) error
	// Read returns the members that have not expired, and the plan. It may return an older state than the newest one. Its error wraps
	// sharedlog.ErrUnavailable if a later attempt may succeed: then Start waits.
	Read(ctx context.Context) (Snapshot, error)
	// Swap writes the plan if the present one has this revision, in one atomic step, and returns the new revision, which is greater.
	// Revision 0 means that there is no plan. Its error is ErrConflict if the plan has another revision. After any other error it is unknown
	// whether the plan was written.
	Swap(ctx context.Context, revision uint64, p Plan) (uint64, error)
	// Changed yields a hint after a change by any node, so that nodes read the table sooner. Hints may be lost. The channel is always the
	// same, and is nil if the table gives no hints.
	Changed() <-chan struct{}
}
