package budget

import (
	"log/slog"
	"time"
)

// logInterval is the least time between two lines about refusals.
const logInterval = time.Minute

// refusals has the number of refusals, and logs some of them. Its fields are guarded by Budget.mu.
type refusals struct {
	log    *slog.Logger // nil discards
	count  uint64
	logged uint64    // the refusals up to the last line
	at     time.Time // of the last line
}

// LogTo makes the budget log leases that have waited in vain, in at most one line a minute. The line has the object; the bytes that the lease
// has waited for, the bytes of its client, of all clients of the object and of all objects, and the limit; the number of clients of the object
// that wait, with this one; and the number of refusals that were not logged since the last line.
func (b *Budget) LogTo(log *slog.Logger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusals.log = log
}

// refuseLocked counts a lease that has waited in vain for more bytes, and returns a function that logs it. The caller calls it without the lock.
func (b *Budget) refuseLocked(l *Lease, more int64) (report func()) {
	r, now := &b.refusals, time.Now()
	r.count++
	log := r.log
	if log == nil || now.Sub(r.at) < logInterval {
		return func() {}
	}
	c := l.of
	args := []any{
		"object", c.object.String(), "wanted", more, "of_client", c.used + c.lent(), "of_object", c.group.used + c.group.lent(),
		"of_all", b.used + b.lent, "limit", b.share + b.reserve, "waiting", len(c.group.waiting), "not_logged", r.count - r.logged - 1,
	}
	r.logged, r.at = r.count, now
	return func() { log.Warn("the read budget has refused a client", args...) }
}
