package cli

import (
	"fmt"
	"io"
	"runtime/debug"
)

type versionCmd struct{}

// Run is the command.
func (versionCmd) Run(out io.Writer) error {
	version := "unreleased"
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintln(out, "dohost", version, info.GoVersion)
	return err
}
