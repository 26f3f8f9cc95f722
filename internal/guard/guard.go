// Package guard calls functions that users of the module supply. A panic or a call of
// runtime.Goexit in such a function must not end a goroutine of the module: the
// committer, a sweeper or a scheduler serves all objects of a host.
package guard

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Failure describes a function that did not return.
type Failure struct {
	// Value is the argument of panic; nil if the function called runtime.Goexit.
	Value any
	// Stack is the stack of the goroutine at the end of the function.
	Stack []byte
}

// Error describes the panic, or the exit, in one line: a line break in the value becomes a semicolon.
func (f *Failure) Error() string {
	if f.Value == nil {
		return "the function called runtime.Goexit"
	}
	lines := strings.FieldsFunc(fmt.Sprintf("panic: %v", f.Value), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

// Call calls f and recovers a panic, which it returns. It does not stop runtime.Goexit.
// The result is nil if f has returned.
func Call(f func()) (failure *Failure) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			failure = &Failure{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	returned = true
	return nil
}

// Start calls f on a goroutine of its own. The channel yields one value when f has
// ended: nil if f has returned.
func Start(f func()) <-chan *Failure {
	ended := make(chan *Failure, 1)
	go run(f, ended)
	return ended
}

// Run calls f on a goroutine of its own and waits until it has ended. The result is nil
// if f has returned. Neither a panic nor runtime.Goexit in f reaches the caller.
func Run(f func()) *Failure { return <-Start(f) }

func run(f func(), ended chan<- *Failure) {
	returned := false
	defer func() {
		if returned {
			ended <- nil
			return
		}
		ended <- &Failure{Value: recover(), Stack: debug.Stack()}
	}()
	f()
	returned = true
}
