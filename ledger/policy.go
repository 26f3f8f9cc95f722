package ledger

import "fmt"

// Policy is the treatment of an operation whose outcome is unknown.
type Policy uint8

// The policies.
const (
	// PolicyAtMostOnce never repeats a call whose outcome is unknown. [Do] returns an [UnknownError] until an operator resolves the
	// operation.
	PolicyAtMostOnce Policy = iota + 1
	// PolicyIdempotent calls again with the same [ID]. It is for effects that are harmless to repeat, and for services that treat
	// requests with the same key as one.
	PolicyIdempotent
	// PolicyReconcile asks the other side with [Kind].Find, and calls again only after AnswerNotDone.
	PolicyReconcile
)

var policyNames = [...]string{"", "AtMostOnce", "Idempotent", "Reconcile"}

// String returns the name of the policy.
func (p Policy) String() string {
	if int(p) < len(policyNames) && p > 0 {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}
