package logtest

import (
	"sync"
	"testing"

	"github.com/dohost/dohost/sharedlog"
)

func TestLogInMemory(t *testing.T) {
	var logs sync.Map // by test
	Run(t, Implementation{Open: func(t *testing.T, again bool) sharedlog.Log {
		if !again {
			logs.Store(t.Name(), &Log{})
		}
		l, _ := logs.Load(t.Name())
		return l.(*Log)
	}})
}
