package guard

import (
	"errors"
	"fmt"
	"time"
)

// Text returns err.Error(), or a text in its place if that call panics, calls
// runtime.Goexit or takes longer than a second.
func Text(err error) string {
	text, failure := within(err.Error)
	if failure != nil {
		return fmt.Sprintf("an error of type %T, whose text cannot be read: %v", err, failure)
	}
	return text
}

// Is is errors.Is. It returns false if a method of an error panics, calls
// runtime.Goexit or takes longer than a second.
func Is(err, target error) bool {
	is, failure := within(func() bool { return errors.Is(err, target) })
	return is && failure == nil
}

// within calls f on a goroutine of its own, and waits for patience at most.
func within[T any](f func() T) (v T, err error) {
	result := make(chan T, 1)
	ended := Start(func() { result <- f() })
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case failure := <-ended:
		if failure != nil {
			return v, failure
		}
		return <-result, nil
	case <-late.C:
		return v, errLate
	}
}

var errLate = fmt.Errorf("the function has not returned after %v", patience)
