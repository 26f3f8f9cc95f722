// Package kernel gives tests and tools of this module the runtime under a dohost.Host. The public API does not reach
// it: package dohost has documented functions for all needs of an object's author and of an operator. An architecture
// test keeps agent, chat, web and cli from importing this package.
package kernel

import (
	"context"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Package dohost sets these variables when it is initialized. It cannot be imported from here, so the parameters are
// of type any; a parameter of another type panics.
var (
	// OfHost returns the runtime of the host that a dohost.Locator locates.
	OfHost func(locator any) *runtime.Host
	// OfState returns the runtime's State of a *dohost.State.
	OfState func(state any) *runtime.State
	// Tune adds a function to a *dohost.Options. Open calls it with the runtime's options, after those that were
	// added before, and uses the options as the functions leave them.
	Tune func(options any, change func(*runtime.Options))
	// SetFS sets the file system of the store in a *dohost.Options. Nil means the disk. Callers use OnFS.
	SetFS func(options any, fs *objectstore.FS)
	// CheckStore is dohost.CheckDir of an open store. classes is a []dohost.Class.
	CheckStore func(
		ctx context.Context, s *objectstore.Store, report func(objectstore.Problem), classes any,
	) (objectstore.CheckStats, error)
)

// OnFS sets the file system of the store in options, a *dohost.Options, and returns the options.
func OnFS[O any](options *O, fs *objectstore.FS) *O {
	SetFS(options, fs)
	return options
}
