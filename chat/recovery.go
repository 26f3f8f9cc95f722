package chat

import "time"

// Recovery bounds how often and how long an interrupted reply resumes. The zero Recovery means the defaults.
type Recovery struct {
	// Off ends an interrupted reply with its present chunks instead of resuming it.
	Off bool
	// MaxAttempts bounds the attempts in a row that add no chunk. Zero means 5; negative means no bound.
	MaxAttempts int
	// CountAllAttempts makes MaxAttempts bound all attempts, including those that add chunks.
	CountAllAttempts bool
	// ProgressTimeout bounds the time without a new chunk. Zero means 5 min; negative means no bound.
	ProgressTimeout time.Duration
	// MaxChunks bounds the chunks in the log of a reply beyond those of its first run. Zero means 10,000; negative means no
	// bound.
	MaxChunks int
	// FailureMessage is the error that clients receive when a reply is given up. Empty means a text that says that the
	// assistant was interrupted and could not recover.
	FailureMessage string
}

func (r Recovery) withDefaults() Recovery {
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 5
	}
	if r.ProgressTimeout == 0 {
		r.ProgressTimeout = 5 * time.Minute
	}
	if r.MaxChunks == 0 {
		r.MaxChunks = 10_000
	}
	if r.FailureMessage == "" {
		r.FailureMessage = "The assistant was interrupted and could not recover. Please try again."
	}
	return r
}

// runs has the counters of a reply's runs.
type runs struct {
	Begun     int    // runs, including the first and an attempt that was given up
	Idle      int    // attempts in a row without a new chunk, including the next one
	Chunks    uint64 // in the log when the last attempt began
	First     uint64 // chunks of the first run
	IdleFrom  int64  // start of the first attempt without a new chunk, in ms
	Truncated int    // runs interrupted by the model's provider
}

// recoveryDecision is the decision about an interrupted reply.
type recoveryDecision int

const (
	decideResume recoveryDecision = iota // call the handler again
	decideWait                           // a client must act: the chunks so far are the reply
	decideFail                           // a bound of Recovery is exceeded
	decideKeep                           // recovery is off: the chunks so far are the reply
)

// Reasons for giving up, in the words of @cloudflare/ai-chat.
const (
	reasonWorkBudget  = "work_budget_exceeded"
	reasonNoProgress  = "no_progress_timeout"
	reasonMaxAttempts = "max_attempts_exceeded"
)

// countInterruption counts an attempt to resume an interrupted reply with so many chunks in its log, and decides about
// it. waits reports that the reply ends with calls that wait for a client: their time does not count as lack of
// progress.
func (r *runs) countInterruption(rules Recovery, chunks uint64, waits bool, now time.Time) (v recoveryDecision, why string) {
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
		return decideWait, ""
	case rules.Off:
		return decideKeep, ""
	case rules.MaxChunks >= 0 && chunks-r.First > uint64(rules.MaxChunks):
		return decideFail, reasonWorkBudget
	case rules.ProgressTimeout >= 0 && now.Sub(time.UnixMilli(r.IdleFrom)) > rules.ProgressTimeout:
		return decideFail, reasonNoProgress
	case most >= 0 && (r.Idle > most || rules.CountAllAttempts && r.Begun-1 > most):
		return decideFail, reasonMaxAttempts
	}
	return decideResume, ""
}
