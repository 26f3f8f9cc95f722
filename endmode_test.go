package dohost_test

import (
	"testing"

	"github.com/dohost/dohost"
)

func TestParseEndMode(t *testing.T) {
	if mode, err := dohost.ParseEndMode("crash"); err != nil || mode != dohost.EndCrash {
		t.Errorf("crash: %v, %v", mode, err)
	}
	const want = `dohost: mode "hard": want one of fence, restart, crash`
	if _, err := dohost.ParseEndMode("hard"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
