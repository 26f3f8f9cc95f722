// Package cli is the dohost command over any set of classes. A server of your own classes, with all tools of an
// operator, is
//
//	func main() { cli.Main(counter.Class()) }
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/web"
)

// commands is the command line.
type commands struct {
	Serve     serveCmd     `cmd:"" default:"withargs" help:"Run objects and serve them over HTTP. The default."`
	Chat      chatCmd      `cmd:"" help:"Talk to a chat agent of a running host."`
	Ls        lsCmd        `cmd:"" help:"List the objects of a running host."`
	Show      showCmd      `cmd:"" help:"Show the state of an object without waking it."`
	Pins      pinsCmd      `cmd:"" help:"Show why an object is in memory."`
	Cancel    cancelCmd    `cmd:"" help:"Cancel a fiber, a schedule or a queue item of an object."`
	Retry     retryCmd     `cmd:"" help:"Run an item of an object again, such as a failed or interrupted fiber, a dead letter, or a failed task of a pool."`
	Delete    deleteCmd    `cmd:"" help:"Delete an item of an object, such as an ended fiber, a dead letter, or an ended task of a pool."`
	Approvals approvalsCmd `cmd:"" help:"List the tool calls and the exhausted budgets of an agent that wait for an approval, or its audit log."`
	Approve   approveCmd   `cmd:"" help:"Approve a tool call of a chat agent, or a grant for an exhausted budget."`
	Deny      denyCmd      `cmd:"" help:"Refuse a tool call of a chat agent, or a grant for an exhausted budget."`
	Complete  completeCmd  `cmd:"" help:"End a tool call of a chat agent that another party runs."`
	Resolve   resolveCmd   `cmd:"" help:"Decide the outcome of an unknown operation of an object."`
	Close     closeCmd     `cmd:"" help:"Close an object's WebSockets."`
	Evict     evictCmd     `cmd:"" help:"End an object's incarnation. The next request starts a new one."`
	Alarm     alarmCmd     `cmd:"" help:"Show, set or delete an object's alarm; list and revive parked alarms."`
	Post      postCmd      `cmd:"" help:"Post a task for the workers of a pool."`
	Work      workCmd      `cmd:"" help:"Be a worker of a pool: run a command for each task."`
	Daemon    daemonCmd    `cmd:"" help:"Start and restart the worker of a role of a pool."`
	Export    exportCmd    `cmd:"" help:"Write an object's durable state to a file."`
	Import    importCmd    `cmd:"" help:"Create an object from an export."`
	Backup    backupCmd    `cmd:"" help:"Make a consistent copy of the store of a running host."`
	Restore   restoreCmd   `cmd:"" help:"Make a store, or the export of one object, from the records that dohost serve --ship has put into a folder."`
	Standby   standbyCmd   `cmd:"" help:"Follow the records that dohost serve --ship puts into a folder, in a store that can be promoted."`
	Promote   promoteCmd   `cmd:"" help:"Turn a running standby into a store for dohost serve."`
	Check     checkCmd     `cmd:"" help:"Check the consistency of a store that no host is using."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

// App is the command over some classes, with commands of the program's own.
type App struct {
	Classes []dohost.Class
	// Serve are the names of the classes that the public listener of dohost serve serves. Nil means
	// all classes except classes that are used only as sub-agents: see [web.Roots]. The admin listener
	// serves all.
	Serve []string
	// Commands are further commands.
	Commands []Command
	// Questions are suggestions of the page of dohost serve for the agents of a class, by its name.
	Questions map[string][]string
	// SharedLog adds a kind of shared log to dohost serve. It is a pointer to a struct of flags, as kong reads them. Nil adds none.
	SharedLog SharedLog
}

// SharedLog is a kind of shared log, in addition to one in a folder (--shared-log).
type SharedLog interface {
	// OpenLog returns the log that the flags choose, or nil if they choose none. log gets warnings.
	OpenLog(ctx context.Context, log *slog.Logger) (sharedlog.Log, error)
}

// servedClasses are the names in App.Serve.
type servedClasses []string

// questions are App.Questions.
type questions map[string][]string

// Command is a command that a program adds.
type Command struct {
	Name, Help string
	// Value is a pointer to a struct of flags, as kong reads them, with a method Run. Run may have parameters of types
	// context.Context, io.Writer and []dohost.Class.
	Value any
}

// ErrReported is the error of a command that has already printed it: Main only exits with status 1.
var ErrReported = errors.New("cli: the error has been reported")

// Main runs the command that the process's arguments name, over these classes, and
// exits: see [App.Main].
func Main(classes ...dohost.Class) { App{Classes: classes}.Main() }

// Main runs the command that the arguments of the process name, and exits. The status is 2 if the arguments cannot be parsed, or the flags of
// one of App.Commands are declared wrongly; 1 if the command fails, for instance because it refuses a flag that could be parsed; and otherwise 0.
func (a App) Main() {
	os.Exit(a.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run is [App.Main] with arguments and streams of the caller, for instance in a test of [App.Commands]. It returns the
// exit status, and reports every error but [ErrReported] on the stream of errors. A command that serves or waits ends with ctx. Commands
// of one process that serve must not run concurrently: they handle its signals.
func (a App) Run(ctx context.Context, args []string, in io.Reader, out, errors io.Writer) (status int) {
	return a.run(ctx, args, stdio{in, out, errors})
}

// stdio is the input and the outputs of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run is Main without the exit of the process. It returns the exit status.
func (a App) run(ctx context.Context, args []string, std stdio) (status int) {
	var cmds commands
	if a.SharedLog != nil {
		cmds.Serve.Plugins = kong.Plugins{a.SharedLog}
	}
	options := []kong.Option{
		kong.Name("dohost"), kong.Description("Durable Objects on your own machine."),
		kong.Writers(std.out, std.err), kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(std.out, (*io.Writer)(nil)),
		kong.Bind(a.Classes), kong.Bind(questions(a.Questions)), kong.Bind(a.served()), kong.Bind(std), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	}
	for _, c := range a.Commands {
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Value))
	}
	parser, err := kong.New(&cmds, options...)
	if err != nil {
		fmt.Fprintln(std.err, "dohost:", err)
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
	cmd, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(std.err, "dohost:", parseError(err, parser, args))
		return 2
	}
	if err := cmd.Run(); err != nil {
		if !errors.Is(err, ErrReported) {
			fmt.Fprintln(std.err, "dohost:", explain(err))
		}
		return 1
	}
	return 0
}

// served returns the names of the classes that the public listener serves.
func (a App) served() servedClasses {
	if a.Serve == nil {
		return web.Roots(a.Classes)
	}
	return a.Serve
}

// exitStatus is the status of kong's own --help.
type exitStatus int
