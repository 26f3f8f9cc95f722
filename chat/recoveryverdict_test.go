package chat

import (
	"fmt"
	"testing"
	"time"
)

// TestRecoveryVerdicts is the table of verdicts about interrupted replies, attempt after attempt. A step has the
// number of chunks in the log, and the time since the first interruption.
func TestRecoveryVerdicts(t *testing.T) {
	type cut struct {
		chunks uint64
		after  time.Duration
		waits  bool
	}
	still := func(n int, each time.Duration) (cuts []cut) {
		for i := range n {
			cuts = append(cuts, cut{after: time.Duration(i) * each})
		}
		return cuts
	}
	growing := func(n int, by uint64) (cuts []cut) {
		for i := range n {
			cuts = append(cuts, cut{chunks: by * uint64(i+1)})
		}
		return cuts
	}
	cases := []struct {
		name  string
		rules Recovery
		cuts  []cut
		want  string // the concatenated verdicts
	}{
		{"before the first chunk", Recovery{}, []cut{{}}, "goOn1"},
		{"five times nothing", Recovery{}, still(6, time.Second), "goOn1 goOn2 goOn3 goOn4 goOn5 giveUp max_attempts_exceeded"},
		{"once is all", Recovery{MaxAttempts: 1}, still(2, 0), "goOn1 giveUp max_attempts_exceeded"},
		{"without bound", Recovery{MaxAttempts: -1}, still(8, 0), "goOn1 goOn2 goOn3 goOn4 goOn5 goOn6 goOn7 goOn8"},
		{"each gets further", Recovery{}, growing(8, 3), "goOn1 goOn1 goOn1 goOn1 goOn1 goOn1 goOn1 goOn1"},
		{"each gets further, strictly", Recovery{CountAllAttempts: true}, growing(6, 3), "goOn1 goOn1 goOn1 goOn1 goOn1 giveUp max_attempts_exceeded"},
		{"three, strictly", Recovery{CountAllAttempts: true}, growing(3, 3), "goOn1 goOn1 goOn1"},
		{"further in between", Recovery{MaxAttempts: 2}, []cut{{chunks: 1}, {chunks: 1}, {chunks: 2}, {chunks: 2}, {chunks: 2}},
			"goOn1 goOn2 goOn1 goOn2 giveUp max_attempts_exceeded"},
		{"five minutes", Recovery{}, []cut{{}, {after: 5 * time.Minute}, {after: 5*time.Minute + 1}}, "goOn1 goOn2 giveUp no_progress_timeout"},
		{"the clock starts again", Recovery{}, []cut{{}, {chunks: 1, after: time.Hour}, {chunks: 1, after: time.Hour + time.Minute}},
			"goOn1 goOn1 goOn2"},
		{"an hour without bound", Recovery{ProgressTimeout: -1}, []cut{{}, {after: time.Hour}}, "goOn1 goOn2"},
		{"a night before the first attempt", Recovery{}, []cut{{chunks: 7, after: 12 * time.Hour}}, "goOn1"},
		{"work", Recovery{MaxChunks: 10}, []cut{{chunks: 100}, {chunks: 110}, {chunks: 111}}, "goOn1 goOn1 giveUp work_budget_exceeded"},
		{"no work at all", Recovery{MaxChunks: -1}, []cut{{chunks: 1}, {chunks: 1e6}}, "goOn1 goOn1"},
		{"work before time", Recovery{MaxChunks: 1}, []cut{{}, {chunks: 2}, {chunks: 2, after: time.Hour}}, "goOn1 giveUp work_budget_exceeded giveUp work_budget_exceeded"},
		{"time before attempts", Recovery{MaxAttempts: 1}, []cut{{}, {after: time.Hour}}, "goOn1 giveUp no_progress_timeout"},
		{"somebody else's turn", Recovery{MaxAttempts: 1}, []cut{{}, {waits: true}, {waits: true, after: time.Hour}}, "goOn1 park park"},
		{"off", Recovery{Off: true}, []cut{{chunks: 3}}, "keep"},
		{"off, and somebody else's turn", Recovery{Off: true}, []cut{{waits: true}}, "park"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(1_000_000, 0)
			r, got := runs{Begun: 1}, ""
			for i, cut := range c.cuts {
				v, why := r.cut(c.rules.withDefaults(), cut.chunks, cut.waits, start.Add(cut.after))
				if i > 0 {
					got += " "
				}
				switch v {
				case goOn:
					got += fmt.Sprintf("goOn%d", r.Idle)
				case giveUp:
					got += "giveUp " + why
				case park:
					got += "park"
				case keep:
					got += "keep"
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
