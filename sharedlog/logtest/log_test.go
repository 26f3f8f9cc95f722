package logtest

import (
	"testing"

	"github.com/dohost/dohost/sharedlog"
)

func TestLogInMemory(t *testing.T) {
	var last *Log
	Run(t, func(_ *testing.T, again bool) sharedlog.Log {
		if !again {
			last = &Log{}
		}
		return last
	})
}
