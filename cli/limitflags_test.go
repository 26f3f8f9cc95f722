package cli

import (
	"testing"
)

// TestLimitFlagsAreComparedWithTheDefaults checks flags of zero, which select the defaults: 4 and 16 MiB, and a budget of 256 MiB.
func TestLimitFlagsAreComparedWithTheDefaults(t *testing.T) {
	for want, f := range map[string]limitFlags{
		"": {},
		"--read-budget 256: want at least --max-frame 4 and --max-body 500":  {MaxBody: 500},
		"--read-budget 256: want at least --max-frame 300 and --max-body 16": {MaxFrame: 300},
		"--read-budget 8: want at least --max-frame 4 and --max-body 16":     {ReadBudget: 8},
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
