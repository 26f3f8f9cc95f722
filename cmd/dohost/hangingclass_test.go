//go:build unix

package main

import (
	"context"

	"github.com/dohost/dohost"
)

// stone is an object that ignores its context.
type stone struct{ st *dohost.State }

const stones dohost.Namespace[stone] = "stone"

func quarry() dohost.Class {
	return dohost.Bind(stones, func(_ context.Context, st *dohost.State) (*stone, error) { return &stone{st}, nil }, nil,
		dohost.Expose("hang", dohost.Bare((*stone).Hang)))
}

// Hang writes, and never returns, even after its context ends.
func (s *stone) Hang(ctx context.Context) error {
	if err := dohost.Put(ctx, s.st.Storage(), "v", "half"); err != nil {
		return err
	}
	select {}
}
