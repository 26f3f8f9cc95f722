package dohosttest

import (
	"fmt"
	goruntime "runtime"
	"strings"

	"github.com/dohost/dohost"
)

// Point is a visit to a place where an incarnation can end. Points are counted for each
// object separately, through all of its incarnations, so that independent objects may
// interleave.
type Point struct {
	Object      dohost.ID
	Index       int    // counts the object's points in the run, from 1
	Incarnation int    // counts the object's incarnations in the run, from 1; 0 is between two
	Event       uint64 // counts the object's events since it came into memory
	Op          string // the event's operation: the method, "alarm", "constructor", or "record"
	Place       dohost.Place
	N           uint64 // counts the event's visits to the place, from 1
	// Site is the file and line of the object's code, if it is on the stack. It is known
	// only where an incarnation is ended.
	Site string
}

// String names the point.
func (p Point) String() string {
	return fmt.Sprintf("%v point %d (%s)", p.Object, p.Index, p.name())
}

// name returns the part of a point that must be the same in every run.
func (p Point) name() string {
	return fmt.Sprintf("incarnation %d, event %d %s, %s %d", p.Incarnation, p.Event, p.Op, p.Place, p.N)
}

// ours are the packages that are not the object's code.
var ours = []string{
	"runtime.", "testing.", "testing/", "internal/",
	"github.com/dohost/dohost.", "github.com/dohost/dohost/runtime.", "github.com/dohost/dohost/objectstore.",
	"github.com/dohost/dohost/alarm.", "github.com/dohost/dohost/dohosttest.", "github.com/dohost/dohost/internal/guard.",
	"github.com/dohost/dohost/ledger.", "github.com/dohost/dohost/agent.", "github.com/dohost/dohost/chat.",
	"github.com/dohost/dohost/internal/policytest.", "github.com/dohost/dohost/ledger/ledgertest.", "github.com/dohost/dohost/chat/chattest.",
}

// callers returns the stack of a goroutine at a point.
func callers() []uintptr {
	var pcs [48]uintptr
	return append([]uintptr(nil), pcs[:goruntime.Callers(3, pcs[:])]...)
}

// callSite returns the file and line of the object's code on the stack, or nothing.
func callSite(pcs []uintptr) string {
	if len(pcs) == 0 {
		return ""
	}
	frames := goruntime.CallersFrames(pcs)
	site := ""
	for {
		f, more := frames.Next()
		if f.Function != "" && !isOurs(f.Function) {
			at := fmt.Sprintf("%s:%d", short(f.File), f.Line)
			if !strings.HasSuffix(f.File, "_test.go") {
				return at
			}
			if site == "" { // perhaps a test's double that the object has called
				site = at
			}
		}
		if !more {
			return site
		}
	}
}

func isOurs(function string) bool {
	for _, prefix := range ours {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// short returns the folder and the name of a path.
func short(path string) string {
	for i, n := len(path)-1, 0; i >= 0; i-- {
		if path[i] == '/' {
			if n++; n == 2 {
				return path[i+1:]
			}
		}
	}
	return path
}
