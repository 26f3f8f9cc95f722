package cli

import (
	"io"
	"runtime/debug"
)

type versionCmd struct{ jsonFlag }

// Run is the command.
func (c versionCmd) Run(out io.Writer) error {
	version := "unreleased"
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	return c.print(out, versionJSON{version, info.GoVersion}, "dohost %s %s\n", version, info.GoVersion)
}
