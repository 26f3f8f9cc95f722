// Package cli is the dohost command over any set of classes: a server of one's own
// classes is
//
//	func main() { cli.Main(counter.Class()) }
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/dohost/dohost"
)

// commands is the command line.
type commands struct {
	Demo    demoCmd    `cmd:"" help:"Run a job under chaos and SIGKILL, and check that nothing was lost."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// Main runs the command that the process's arguments name, and exits.
func Main(classes ...dohost.Class) {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, classes))
}

// run is Main without the process. It returns the exit status.
func run(args []string, stdout, stderr io.Writer, classes []dohost.Class) (status int) {
	var cmds commands
	parser, err := kong.New(&cmds, kong.Name("dohost"), kong.Description("Durable Objects on your own machine."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.BindTo(stdout, (*io.Writer)(nil)), kong.Bind(classes))
	if err != nil {
		fmt.Fprintln(stderr, "dohost:", err)
		return 2
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exitStatus:
			status = int(p)
		default:
			panic(p)
		}
	}()
	ctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(stderr, "dohost:", err)
		return 2
	}
	if err := ctx.Run(); err != nil {
		if !errors.Is(err, errInexact) && !errors.Is(err, errBrokenOff) { // these have said why
			fmt.Fprintln(stderr, "dohost:", err)
		}
		return 1
	}
	return 0
}

// exitStatus is how kong's own --help leaves.
type exitStatus int

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
