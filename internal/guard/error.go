package guard

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Text returns err.Error(), or a text in its place if that call panics, calls
// runtime.Goexit or takes longer than a second.
func Text(err error) string {
	text, failure := resultWithin(new(atomic.Int64), err.Error)
	if failure != nil {
		return fmt.Sprintf("an error of type %T, whose text cannot be read: %v", err, failure)
	}
	return text
}

// Is is errors.Is. It returns false if a method of an error panics, calls
// runtime.Goexit or takes longer than a second.
func Is(err, target error) bool {
	is, failure := resultWithin(new(atomic.Int64), func() bool { return errors.Is(err, target) })
	return is && failure == nil
}
