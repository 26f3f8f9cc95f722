package chat

import (
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// TestRecoveryDecisions is the table of decisions about interrupted replies, attempt after attempt. A step has the
// number of chunks in the log, and the time since the first interruption.
func TestRecoveryDecisions(t *testing.T) {
	type interruption struct {
		chunks    uint64
		after     time.Duration
		truncated bool // by the model's provider
	}
	idle := func(n int, each time.Duration) (cuts []interruption) {
		for i := range n {
			cuts = append(cuts, interruption{after: time.Duration(i) * each})
		}
		return cuts
	}
	progressing := func(n int, by uint64) (cuts []interruption) {
		for i := range n {
			cuts = append(cuts, interruption{chunks: by * uint64(i+1)})
		}
		return cuts
	}
	cases := []struct {
		name  string
		rules Recovery
		cuts  []interruption
		want  string // the concatenated decisions
	}{
		{"before the first chunk", Recovery{}, []interruption{{}}, "resume1"},
		{"five times nothing", Recovery{}, idle(6, time.Second), "resume1 resume2 resume3 resume4 resume5 fail max_attempts_exceeded"},
		{"once is all", Recovery{MaxAttempts: 1}, idle(2, 0), "resume1 fail max_attempts_exceeded"},
		{"without bound", Recovery{MaxAttempts: -1}, idle(8, 0), "resume1 resume2 resume3 resume4 resume5 resume6 resume7 resume8"},
		{"each gets further", Recovery{}, progressing(8, 3), "resume1 resume1 resume1 resume1 resume1 resume1 resume1 resume1"},
		{"each gets further, strictly", Recovery{CountAllAttempts: true}, progressing(6, 3), "resume1 resume1 resume1 resume1 resume1 fail max_attempts_exceeded"},
		{"three, strictly", Recovery{CountAllAttempts: true}, progressing(3, 3), "resume1 resume1 resume1"},
		{"further in between", Recovery{MaxAttempts: 2}, []interruption{{chunks: 1}, {chunks: 1}, {chunks: 2}, {chunks: 2}, {chunks: 2}},
			"resume1 resume2 resume1 resume2 fail max_attempts_exceeded"},
		{"five minutes", Recovery{}, []interruption{{}, {after: 5 * time.Minute}, {after: 5*time.Minute + time.Millisecond}}, "resume1 resume2 fail no_progress_timeout"},
		{"the clock starts again", Recovery{}, []interruption{{}, {chunks: 1, after: time.Hour}, {chunks: 1, after: time.Hour + time.Minute}},
			"resume1 resume1 resume2"},
		{"an hour without bound", Recovery{ProgressTimeout: -1}, []interruption{{}, {after: time.Hour}}, "resume1 resume2"},
		{"a night before the first attempt", Recovery{}, []interruption{{chunks: 7, after: 12 * time.Hour}}, "resume1"},
		{"truncated answers", Recovery{MaxAttempts: 2}, []interruption{{truncated: true}, {truncated: true}, {truncated: true}},
			"resume1 resume2 fail max_attempts_exceeded"},
		{"truncated answers that add chunks", Recovery{MaxAttempts: 2}, []interruption{{truncated: true}, {chunks: 1, truncated: true}, {chunks: 2, truncated: true}},
			"resume1 resume2 fail max_attempts_exceeded"},
		{"truncated answer, then interruptions", Recovery{MaxAttempts: 2}, []interruption{{truncated: true}, {}, {chunks: 1}, {chunks: 1}},
			"resume1 resume2 resume2 fail max_attempts_exceeded"},
		{"truncated answers for five minutes", Recovery{MaxAttempts: -1}, []interruption{{truncated: true}, {after: 6 * time.Minute, truncated: true}},
			"resume1 fail no_progress_timeout"},
		{"work", Recovery{MaxChunks: 10}, []interruption{{chunks: 100}, {chunks: 110}, {chunks: 111}}, "resume1 resume1 fail work_budget_exceeded"},
		{"no work at all", Recovery{MaxChunks: -1}, []interruption{{chunks: 1}, {chunks: 1e6}}, "resume1 resume1"},
		{"work before time", Recovery{MaxChunks: 1}, []interruption{{}, {chunks: 2}, {chunks: 2, after: time.Hour}}, "resume1 fail work_budget_exceeded fail work_budget_exceeded"},
		{"time before attempts", Recovery{MaxAttempts: 1}, []interruption{{}, {after: time.Hour}}, "resume1 fail no_progress_timeout"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(1_000_000, 0)
			rules, got := c.rules.withDefaults(), ""
			r := replyRow{Item: work.Item{State: work.Running, Owner: "call"}}
			for i, cut := range c.cuts {
				next, why := r.interrupted(rules, rules.policy(), fmt.Sprint("call ", i), cut.chunks, cut.truncated, start.Add(cut.after))
				if i > 0 {
					got += " "
				}
				if why != "" {
					got += "fail " + why
					continue
				}
				got += fmt.Sprintf("resume%d", next.Failures+next.Stalls)
				r = next
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
