package pool

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/dohost/dohost"
)

// These are the refusals of a pool: errors.Is(err, refusal) reports whether err is one of that kind, for the methods of a [Pool] and of
// a [Client]. Over HTTP they have the code that the message begins with. A refused request has changed nothing, with four exceptions: the
// pool keeps the result of a late Handoff, the heartbeat of a Claim that is refused with ErrFull counts, that Claim has ended the pending
// tasks whose deadlines are over, and a Take for a role that is not offline withdraws the requested restart.
var (
	// ErrInvalid reports an argument that is missing, malformed, or larger than its limit.
	ErrInvalid error = &kind{"invalid", http.StatusBadRequest, errors.New("pool: invalid argument")}
	// ErrStale reports that a connection is not, or no longer, a worker of the role: it has not joined, has left, or was removed
	// after its TTL.
	ErrStale error = &kind{"stale", http.StatusConflict, dohost.ErrConflict}
	// ErrClaimLost reports that the claim of a task is not the current one: another worker has the task, or it is pending again.
	ErrClaimLost error = &kind{"fence", http.StatusConflict, dohost.ErrConflict}
	// ErrTransition reports a transition that does not exist, such as the handoff of a task that was not started.
	ErrTransition error = &kind{"transition", http.StatusConflict, dohost.ErrConflict}
	// ErrNotFound reports a role, a task or a command that does not exist.
	ErrNotFound error = &kind{"unknown", http.StatusNotFound, dohost.ErrNotFound}
	// ErrKeyUsed reports a post with the key of a task that has another role, text or once, or that notifies another agent.
	ErrKeyUsed error = &kind{"key_used", http.StatusConflict, dohost.ErrConflict}
	// ErrFull reports that the pool has the maximum number of workers, tasks, roles (256), waiting workers (2,000) or waiting daemons (100).
	ErrFull error = &kind{"full", http.StatusTooManyRequests, dohost.ErrOverloaded}
)

// kind is a kind of refusals.
type kind struct {
	code   string
	status int
	of     error // its kind in the root package
}

func (k *kind) Error() string { return "pool: " + k.code }

// Unwrap returns the kind in the root package.
func (k *kind) Unwrap() error { return k.of }

// kinds are all kinds of refusals.
func kinds() []error {
	return []error{ErrInvalid, ErrStale, ErrClaimLost, ErrTransition, ErrNotFound, ErrKeyUsed, ErrFull}
}

// refusal is an error of one of the kinds.
type refusal struct {
	kind *kind
	text string // for the caller
}

// refuse returns a refusal. Its text begins with the code, which a frame of a WebSocket has no other place for.
func refuse(of error, format string, args ...any) error {
	k := of.(*kind)
	return &refusal{k, k.code + ": " + fmt.Sprintf(format, args...)}
}

func (r *refusal) Error() string { return "pool: " + r.text }

// Unwrap returns the kind, and the error for clients.
func (r *refusal) Unwrap() []error {
	return []error{r.kind, &dohost.PublicError{Message: r.text, Code: r.kind.code, Status: r.kind.status}}
}

// isRefusal reports whether err is of one of the kinds.
func isRefusal(err error) bool {
	for _, k := range kinds() {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
