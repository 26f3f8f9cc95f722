package chat

import "time"

// Recovery bounds how often and how long an interrupted reply resumes. The zero Recovery means the defaults.
type Recovery struct {
	// Off ends an interrupted reply with its present chunks instead of resuming it.
	Off bool
	// MaxAttempts bounds a sum: the consecutive attempts that add no chunk, plus all attempts after a truncated answer of
	// the model. Zero means 5; negative means no bound. With a bound, a reply also gets at most 10,000 attempts in total, or
	// MaxAttempts if MaxAttempts is larger.
	MaxAttempts int
	// CountAllAttempts makes MaxAttempts bound all attempts, including those that add chunks.
	CountAllAttempts bool
	// ProgressTimeout bounds the time without a new chunk. Zero means 5 min; negative means no bound.
	ProgressTimeout time.Duration
	// MaxChunks bounds the chunks in the log of a reply in addition to its first run's chunks. Zero means 10,000; negative means
	// no bound.
	MaxChunks int
	// FailureMessage is the error that clients receive when a reply is given up. Empty means a text which states that
	// the assistant was interrupted and could not recover.
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
