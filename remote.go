package dohost

import (
	"context"
	"time"
)

// Remote carries calls of [Invoke] to the hosts that have the objects: see [Options]. Package cluster has one. Its method may be called from any
// goroutine.
type Remote interface {
	// InvokeRemote makes one attempt of a call. It does not change c. It passes c to [Host.AnswerCall] of the host that has the object, and
	// returns the answer. Its error is an [*Error] with the outcome of the attempt; with any other error the outcome is unknown. Retryable
	// is set if another attempt may succeed. InvokeRemote must end soon after ctx, and limit the time of an attempt.
	InvokeRemote(ctx context.Context, c *RemoteCall) (answer []byte, err error)
}

// RemoteCall is a call of [Invoke] on its way to another host.
type RemoteCall struct {
	ID       ID
	Method   string
	Caller   ID            // the calling object; the zero ID for a caller outside of objects
	CallID   string        // never empty
	Keep     time.Duration // the retention period
	Depth    int           // of the chain of calls that has led to this one
	Argument []byte        // JSON
}
