// Package errkind has the kinds of errors that package dohost exports, for the packages that make such errors.
package errkind

import (
	"errors"
	"strings"
)

// The kinds. Package dohost documents them.
var (
	Fenced          = errors.New("dohost: fenced")
	Overloaded      = errors.New("dohost: overloaded")
	Closed          = errors.New("dohost: closed")
	NotFound        = errors.New("dohost: not found")
	Conflict        = errors.New("dohost: conflict")
	Unauthenticated = errors.New("dohost: the request has no valid credentials")
	Forbidden       = errors.New("dohost: access denied")
	Misuse          = errors.New("dohost: misuse")
	NoSpace         = errors.New("dohost: disk almost full")
	Damaged         = errors.New("dohost: damaged")
)

// prefix begins the text of each error of this module's root package.
const prefix = "dohost: "

// detailed is an error of a kind.
type detailed struct {
	kind error
	text string
}

// New returns an error that matches kind by errors.Is. Its text is text after the prefix "dohost: ".
func New(kind error, text string) error { return &detailed{kind, prefix + text} }

func (e *detailed) Error() string        { return e.text }
func (e *detailed) Is(target error) bool { return target == e.kind }

// Text returns the text of err without the prefix "dohost: ", for an error that adds the prefix itself.
func Text(err error) string { return strings.TrimPrefix(err.Error(), prefix) }
