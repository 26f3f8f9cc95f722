//go:build unix

package main

import (
	"context"

	"github.com/dohost/dohost"
)

// hangingObject is an object that ignores its context.
type hangingObject struct{ st *dohost.State }

const hangingObjects dohost.Namespace[hangingObject] = "stone"

func hangingClass() dohost.Class {
	return dohost.Bind(hangingObjects, func(_ context.Context, st *dohost.State) (*hangingObject, error) { return &hangingObject{st}, nil }, nil,
		dohost.Expose("hang", dohost.Bare((*hangingObject).Hang)))
}

// Hang writes, and never returns, even after its context ends.
func (s *hangingObject) Hang(ctx context.Context) error {
	if err := dohost.Put(ctx, s.st.Storage(), "v", "half"); err != nil {
		return err
	}
	select {}
}
