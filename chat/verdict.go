package chat

import "time"

// Recovery says how far a reply is gone on with that was cut off. The zero Recovery means the defaults.
type Recovery struct {
	// Off ends a reply that was cut off, with what it has said, instead of going on with it.
	Off bool
	// MaxAttempts is how often in a row a reply is gone on with that does not get any further. Zero means
	// 5; negative, without bound.
	MaxAttempts int
	// Strict has MaxAttempts count all attempts, also those that got further.
	Strict bool
	// NoProgress is for how long that may go on. Zero means 5 min; negative, without bound.
	NoProgress time.Duration
	// MaxWork is how many chunks a reply may have in its log beyond those of its first run. Zero means
	// 10,000; negative, without bound.
	MaxWork int
	// Apology is what clients are told of a reply that was given up. Empty means a sentence that says
	// that it was interrupted and could not be gone on with.
	Apology string
}

func (r Recovery) withDefaults() Recovery {
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 5
	}
	if r.NoProgress == 0 {
		r.NoProgress = 5 * time.Minute
	}
	if r.MaxWork == 0 {
		r.MaxWork = 10_000
	}
	if r.Apology == "" {
		r.Apology = "The assistant was interrupted and could not recover. Please try again."
	}
	return r
}

// runs is what is known of the runs of a reply's handler.
type runs struct {
	Begun    int    // all of them, the first included
	Idle     int    // attempts in a row that have added nothing, the one that is about to begin included
	Chunks   uint64 // in the log when the last attempt began
	First    uint64 // chunks that the first run has left
	IdleFrom int64  // when the first of those that have added nothing began, in ms
	Severed  int    // those whose model was cut off by its provider
}

// verdict is what is to be done about a reply that was cut off.
type verdict int

const (
	goOn   verdict = iota // call the handler again
	park                  // somebody else is to act: what was said is the reply
	giveUp                // it has gone on for too long
	keep                  // recovery is off: what was said is the reply
)

// Reasons of giving up, as the wire's original has them.
const (
	tooMuchWork  = "work_budget_exceeded"
	noProgress   = "no_progress_timeout"
	tooManyTries = "max_attempts_exceeded"
)

// cut counts an attempt at going on with a reply that was cut off with so many chunks in its log, and
// decides about it. waits says that what it has said ends with calls that a client is to answer: nobody
// is to blame for how long that takes.
func (r *runs) cut(rules Recovery, chunks uint64, waits bool, now time.Time) (v verdict, why string) {
	if r.Begun == 1 {
		r.First = chunks
	}
	if r.Begun == 1 || chunks > r.Chunks {
		r.Idle, r.IdleFrom = 0, now.UnixMilli()
	}
	r.Idle++
	r.Chunks = chunks
	r.Begun++
	most := rules.MaxAttempts
	switch {
	case waits:
		return park, ""
	case rules.Off:
		return keep, ""
	case rules.MaxWork >= 0 && chunks-r.First > uint64(rules.MaxWork):
		return giveUp, tooMuchWork
	case rules.NoProgress >= 0 && now.Sub(time.UnixMilli(r.IdleFrom)) > rules.NoProgress:
		return giveUp, noProgress
	case most >= 0 && (r.Idle > most || rules.Strict && r.Begun-1 > most):
		return giveUp, tooManyTries
	}
	return goOn, ""
}
