// Package hostof gives packages of this module the host of an object. An object's own code does not get it from its State: a host
// can close itself, replace objects, and end incarnations of others.
package hostof

// State returns the *dohost.Host of a *dohost.State. Any goroutine. Package dohost sets it when it is initialized; it cannot be
// imported from here.
var State func(state any) any
