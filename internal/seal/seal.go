// Package seal closes exported functions of the engine to programs outside of this module: a function with a parameter
// of type Key can be called with a Key of New alone.
package seal

// Key proves that the caller is inside the module: only New returns a Key that is valid. Programs outside of the module
// cannot name the type, but type inference and reflection make its zero value for them. So a function with a Key calls
// Check.
type Key struct{ valid bool }

// New returns a valid Key.
func New() Key { return Key{valid: true} }

// Check panics if the Key is not of New.
func (k Key) Check() {
	if !k.valid {
		panic("dohost: a function of the engine was called from outside of the module")
	}
}
