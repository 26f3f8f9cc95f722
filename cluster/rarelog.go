package cluster

import (
	"net/http"
	"sync"
	"time"
)

// rareTime is the time between two log lines of a rareLog.
const rareTime = time.Minute

// rareLog bounds the number of log lines that clients can cause. Its methods may be called from any goroutine.
type rareLog struct {
	// mu guards the rest. It is not held during I/O.
	mu      sync.Mutex
	last    time.Time
	skipped int
}

// next reports whether a line may be written now, and how many were not written since the last one.
func (l *rareLog) next() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < rareTime {
		l.skipped++
		return 0, false
	}
	skipped, l.last, l.skipped = l.skipped, now, 0
	return skipped, true
}

// logUnsigned logs a request that claims to be passed on, and has no valid signature.
func (n *Node) logUnsigned(r *http.Request) {
	if skipped, ok := n.unsigned.next(); ok {
		n.log.Warn("a request that claims to be passed on has no valid signature; if a node has sent it, that node has another secret",
			"remote", r.RemoteAddr, "not_logged", skipped)
	}
}
