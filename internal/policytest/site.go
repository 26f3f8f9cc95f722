package policytest

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
)

// site finds the place of a function that is called through closures of this module, such as those of chat.NewTool: the
// function uses its context, and the stack has the function then.
type site struct {
	mu sync.Mutex
	at string
}

// call calls a function, and observes its uses of the context.
func (s *site) call(ctx context.Context, f func(ctx context.Context) (any, error)) (any, error) {
	return f(observed{ctx, s})
}

// text returns the file and the line of the function; empty if the function has not used its context.
func (s *site) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// observed is a context whose uses are observed.
type observed struct {
	context.Context
	site *site
}

// Value implements [context.Context].
func (o observed) Value(key any) any {
	o.site.observe()
	return o.Context.Value(key)
}

// caller is the name of site.call in a stack.
var caller = packagePath + ".(*site).call"

const packagePath = "github.com/dohost/dohost/internal/policytest"

// between are the packages with functions between site.call and the user's function.
var between = []string{
	packagePath + ".", "github.com/dohost/dohost/chat.", "github.com/dohost/dohost/chat/chattest.", "github.com/dohost/dohost/ledger/ledgertest.",
}

// observe finds the function in the stack.
func (s *site) observe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != "" {
		return
	}
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	at := ""
	for {
		f, more := frames.Next()
		switch {
		case f.Function == caller:
			s.at = at
			return
		case f.Function == "" || isBetween(f.Function):
		case f.Func != nil:
			at = format(f.Func.FileLine(f.Entry))
		default: // an inlined function
			at = format(f.File, f.Line)
		}
		if !more {
			return
		}
	}
}

func isBetween(function string) bool {
	for _, prefix := range between {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// SiteOf returns the file and the line of a function; empty for nil, for a method value, and for a function of package chat.
func SiteOf(function any) string {
	v := reflect.ValueOf(function)
	if v.Kind() != reflect.Func || v.IsNil() {
		return ""
	}
	f := runtime.FuncForPC(v.Pointer())
	if f == nil || isBetween(f.Name()) {
		return ""
	}
	file, line := f.FileLine(f.Entry())
	if strings.HasPrefix(file, "<") {
		return ""
	}
	return format(file, line)
}

func format(file string, line int) string { return fmt.Sprintf("%s:%d", filepath.Base(file), line) }
