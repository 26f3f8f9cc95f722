package cli

import (
	"testing"
)

// TestLimitFlagsAreComparedWithTheDefaults checks flags of zero, which select the defaults: 4 and 16 MiB, and a budget of 256 MiB.
func TestLimitFlagsAreComparedWithTheDefaults(t *testing.T) {
	for want, f := range map[string]limitFlags{
		"": {MaxBody: 500, ReadBudget: 64},
		"--read-budget 256: want at least 344, 4 times the larger of --max-frame 86 and --max-body 16, which counts up to 16 MiB": {MaxFrame: 86},
		"--read-budget 63: want at least 64, 4 times the larger of --max-frame 4 and --max-body 500, which counts up to 16 MiB":   {MaxBody: 500, ReadBudget: 63},
		"--read-budget 29: want at least 40, 4 times the larger of --max-frame 4 and --max-body 10, which counts up to 16 MiB":    {MaxBody: 10, ReadBudget: 29},
	} {
		got := ""
		if err := f.check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}
