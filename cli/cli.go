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
	Version versionCmd `cmd:"" help:"Print the version."`
}

// App is the command over some classes, with commands of the program's own.
type App struct {
	Classes  []dohost.Class
	Commands []Command
}

// Command is a command that a program adds.
type Command struct {
	Name, Help string
	// Value is a pointer to a struct of flags, as kong reads them, with a method
	// Run(io.Writer) error.
	Value any
}

// ErrReported is the error of a command that has said itself what is wrong: only the
// exit status is left.
var ErrReported = errors.New("reported")

// Main runs the command that the process's arguments name, over these classes, and
// exits.
func Main(classes ...dohost.Class) { App{Classes: classes}.Main() }

// Main runs the command that the process's arguments name, and exits.
func (a App) Main() { os.Exit(a.run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is Main without the process. It returns the exit status.
func (a App) run(args []string, stdout, stderr io.Writer) (status int) {
	var cmds commands
	options := []kong.Option{
		kong.Name("dohost"), kong.Description("Durable Objects on your own machine."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.BindTo(stdout, (*io.Writer)(nil)), kong.Bind(a.Classes),
	}
	for _, c := range a.Commands {
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Value))
	}
	parser, err := kong.New(&cmds, options...)
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
		if !errors.Is(err, ErrReported) {
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
