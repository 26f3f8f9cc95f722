package dohost

import (
	"context"
	"errors"

	"github.com/dohost/dohost/objectstore"
)

// CheckProblem is a problem that [CheckDir] found.
type CheckProblem = objectstore.Problem

// CheckStats counts the data that [CheckDir] read.
type CheckStats = objectstore.CheckStats

// CheckDir reads the whole store in dir, which no host may be using, and reports all problems: problems of the stored data
// itself, and the faults that the classes find in their objects ([Handlers].OnInspect). It returns an error only if it
// could not finish.
func CheckDir(ctx context.Context, dir string, report func(CheckProblem), classes ...Class) (stats CheckStats, err error) {
	err = readDir(dir, func(s *objectstore.Store) (err error) {
		stats, err = checkStore(ctx, s, report, classes)
		return err
	})
	return stats, err
}

func readDir(dir string, fn func(*objectstore.Store) error) error {
	s, err := objectstore.Open(dir, &objectstore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}
