// Package errkind has the kinds of errors that package dohost exports, for the packages that make such errors.
package errkind

import (
	"errors"
	"strings"
)

// The kinds. Package dohost documents them.
var (
	ErrFenced          = errors.New("dohost: fenced")
	ErrOverloaded      = errors.New("dohost: overloaded")
	ErrClosed          = errors.New("dohost: closed")
	ErrNotFound        = errors.New("dohost: not found")
	ErrElsewhere       = errors.New("dohost: the object is on another host")
	ErrConflict        = errors.New("dohost: conflict")
	ErrUnauthenticated = errors.New("dohost: the request has no valid credentials")
	ErrForbidden       = errors.New("dohost: access denied")
	ErrMisuse          = errors.New("dohost: misuse")
	ErrNoSpace         = errors.New("dohost: disk almost full")
	ErrDamaged         = errors.New("dohost: damaged")
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

// Text returns the text of an error about a subject: the prefix, the subject, and the text of err without its prefix.
func Text(subject string, err error) string {
	return prefix + subject + ": " + strings.TrimPrefix(err.Error(), prefix)
}

// about is an error that names its subject.
type about struct {
	subject string
	err     error
}

// About returns an error that wraps err, and has the text of [Text].
func About(subject string, err error) error { return &about{subject, err} }

func (e *about) Error() string { return Text(e.subject, e.err) }
func (e *about) Unwrap() error { return e.err }
