package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/dohost/dohost/internal/crowd"
	"github.com/dohost/dohost/internal/recovery"
)

// bench is a run of the program.
type bench struct {
	dir      string // for the data
	seed     uint64
	rounds   int
	duration time.Duration
	objects  int           // in experiments with many objects
	endure   time.Duration // of the endurance run; zero: ten rounds
	rest     time.Duration // before objects count as idle
	profiles string        // the folder for CPU profiles; none if empty
	alone    bool          // without the sides that dohost is compared with
	peer     *peer         // or nil
	streams  *streamPeer   // or nil
	result   Results
}

// experiment measures one thing, or several that share a host.
type experiment struct {
	id   string
	what string
	run  func(ctx context.Context, b *bench) error
}

// experiments has all experiments, in the order of the results.
var experiments = []experiment{
	{"R", "eviction recovery: by a fence, SIGKILL and a restart (R1 to R5, P12)", recoveries},
	{"U", "SIGKILL during operations of package ledger (R6, R6i, R6r), and their false unknowns (U)", unknownOutcomes},
	{"P1", "durable increments, one hot object, 256 outstanding", hotObject},
	{"P1a", "durable appends, one hot object, 256 outstanding", hotAppends},
	{"P2", "durable increments, one object, one caller", oneCaller},
	{"P3", "durable increments, 1,000 objects, 64 outstanding", manyObjects},
	{"P3c", "P3, on one core", manyOnOneCore},
	{"P4", "durable increments over HTTP, one object, 64 connections", hotOverHTTP},
	{"P4m", "durable increments over HTTP, 1,000 objects, 64 connections", manyOverHTTP},
	{"P5", "in-memory call, uncontended round trip", inMemory},
	{"P6", "cold wake: a call to an object on disk", coldWake},
	{"P6h", "cold wake over HTTP", wakeOverHTTP},
	{"P7", "memory of an idle live object, a collection with all of them, and of an evicted object (P8)", objectMemory},
	{"P7a", "memory of an idle live agent, of 10,000 and of -objects (P7b)", agentMemory},
	{"P9", "5,000 alarms over 3 s, all objects evicted", spreadAlarms},
	{"P10", "alarms due at one instant, all objects evicted", instantAlarms},
	{"P11", "opening a store with ten alarms for each of -objects", openingWithAlarms},
	{"P13", "SIGKILL with 10,000 interrupted fibers: to the last recovery hook of the next process", interrupted},
	{"P14", "eviction recovery of an agent mid-fiber: to the resumed fiber's first step", resumedFibers},
	{"P15", "chat: 1,000 replies that stream concurrently, each to a client, without clients (P15a) and at a pace (P15b, P15c)", streamExperiment},
	{"C", "ways to save a fiber's checkpoint: their cost, and the cost of a kill with each of them (C0 to C4c)", checkpointExperiment},
	{"P16", "one object broadcasts to 10,000 sockets that hibernate, and their memory", broadcastExperiment},
	{"L", "operations of package ledger, and the same number of Awaits without it (L1, L2)", ledgerOperations},
	{"W", "rows that are work, compared with a second call for each row and with the limit (W1 to W3)", rowWork},
	{"W4", "inserts into a collection with watches", watchedChanges},
	{"W5", "an agent that asks another one, compared with two replies (W5, W6)", delegation},
	{"W7", "an agent with an inbox that asks another one, of its object and of another one", agentTools},
	{"W8", "the time from the sync of an insert to the watches of its collection", watchDelays},
	{"LG", "cost of 10,000 operations in one object: Do, listings, start and disk (L3 to L6)", ledgerGrowth},
	{"PB", "heartbeats of 1,000 workers of a pool, in closed loops, at their pace and over HTTP (PB1 to PB3)", heartbeats},
	{"PS", "the sweep of a pool with 1,000 workers and 10,000 tasks, compared with smaller pools (PS1, PS2)", sweeps},
	{"PK", "SIGKILL of workers of a pool: until they are unreachable, their tasks are pending, and running again (PK1 to PK6)", workerKills},
	{"I", "agents with an inbox that has nothing to do: their memory and their wakes (I1, I2)", idleInboxes},
	{"SA", "appends to a stream over HTTP (SA1 to SA4)", streamAppends},
	{"SR", "readers of a stream, by long poll and by server-sent events (SR1 to SR4), and from the sync (SR5, SR6)", streamReads},
	{"P17", "P3 with an eviction every 10 calls", underChaos},
	{"P17a", "P3 with an eviction every 10 calls, at any place", underChaosAnywhere},
	{"O1", "open loop at 50, 80 and 200 % of the capacity of the machine", overloadedMachine},
	{"O2", "open loop at 50 and 200 % of the capacity of the objects", overloadedObjects},
	{"P18", "opening a store with many objects", opening},
	{"SH", "shipping of records to a folder: its cost (SH1, SH2), and a restore (SH3)", shippingCosts},
	{"E1", "endurance: mixed work under chaos, for as long as -endure says", endurance},
	{"B", "breakdown of the time of a durable call, and of a cold wake", breakdowns},
	{"G", "cost of a call as the store grows", growth},
	{"A", "deleted entries that reads meet in an old store", readsOfOldStore},
}

func main() {
	if status, is := tool(context.Background()); is {
		os.Exit(status)
	}
	if status, is := recovery.Child(context.Background()); is {
		os.Exit(status)
	}
	if status, is := crowd.Child(); is {
		os.Exit(status)
	}
	if status, is := plainChild(); is {
		os.Exit(status)
	}
	if status, is := child(context.Background()); is {
		os.Exit(status)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "a regular `expression` for the ids of the experiments; all if empty")
	out := flags.String("out", "bench-results", "the `folder` for results.json, results.md and report.html")
	add := flags.Bool("add", false, "keep the other rows of the results in the folder, if they are of this machine")
	dir := flags.String("data", "", "the `folder` for the stores, on the disk to measure; a temporary one if empty")
	with := flags.String("peer", "", "measure `peers` too: workerd, which npm installs into bench/workerd/node_modules, "+
		"@durable-streams/server, which npm has installed in e2e, or both with a comma")
	b := &bench{rest: rest}
	flags.StringVar(&b.profiles, "profiles", "", "a `folder` for a CPU profile of each experiment; none if empty")
	flags.Uint64Var(&b.seed, "seed", 1, "seed of all random choices")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds for each side, after one that warms up")
	flags.DurationVar(&b.duration, "for", 2*time.Second, "duration of a round")
	flags.IntVar(&b.objects, "objects", 100_000, "number of objects in the experiments with many")
	flags.DurationVar(&b.endure, "endure", 20*time.Second, "duration of the endurance run")
	flags.BoolVar(&b.alone, "alone", false, "measure dohost without the sides that it is compared with: for a profile of dohost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*pattern)
	switch {
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q: want flags only", flags.Arg(0))
	case b.rounds < 1 || b.duration <= 0 || b.endure <= 0 || b.objects < 1000:
		return fmt.Errorf("-rounds %d, -for %v, -endure %v, -objects %d: "+
			"want at least 1 round, durations above 0 and at least 1000 objects", b.rounds, b.duration, b.endure, b.objects)
	}
	if *with != "" {
		if err := b.findPeers(ctx, *with); err != nil {
			return err
		}
	}
	if b.dir, err = os.MkdirTemp(*dir, "dohost-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.result = Results{
		Machine: thisMachine(b.dir, time.Now().UTC().Format(time.DateOnly)),
		Command: "go run ./bench " + strings.Join(args, " "), Seed: b.seed, Rounds: b.rounds, For: b.duration,
	}
	var kept *Results
	if *add { // before the measurement, which takes long
		if kept, err = earlier(*out, b.result.Machine); err != nil {
			return err
		}
	}
	for _, e := range chosen {
		fmt.Fprintf(os.Stderr, "%s: %s\n", e.id, e.what)
		if err := profiled(b.profiles, e.id, func() error { return e.run(ctx, b) }); err != nil {
			return fmt.Errorf("%s: %w", e.id, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if b.peer != nil {
		b.result.Peer = b.peer.fact()
	}
	fmt.Print(b.result.table())
	if kept == nil {
		return b.result.write(*out)
	}
	kept.add(&b.result)
	return kept.write(*out)
}

// profiled runs fn, with a CPU profile if there is a folder for it.
func profiled(dir, id string, fn func() error) error {
	if dir == "" {
		return fn()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, id+".pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

func choose(pattern string) (es []experiment, err error) {
	want, err := regexp.Compile("^(" + pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var ids []string
	for _, e := range experiments {
		ids = append(ids, e.id)
		if pattern == "" || want.MatchString(e.id) {
			es = append(es, e)
		}
	}
	if len(es) == 0 {
		return nil, fmt.Errorf("-run %q: want some of %s", pattern, strings.Join(ids, ", "))
	}
	return es, nil
}

// progress prints a line, which the next one overwrites.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\r\033[K  "+format+" ", args...)
}

// add adds a row to the results, and prints it.
func (b *bench) add(r Row) {
	b.result.Rows = append(b.result.Rows, r)
	fmt.Fprintf(os.Stderr, "\r\033[K%s", r.text())
}

// newDir makes a directory for one store.
func (b *bench) newDir() (string, error) { return os.MkdirTemp(b.dir, "store-") }

// write writes the results, and the pages made from them, into a folder.
func (r *Results) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	page, err := r.html()
	if err != nil {
		return err
	}
	text, err := r.markdown()
	if err != nil {
		return err
	}
	return errors.Join(
		r.save(filepath.Join(dir, "results.json")),
		os.WriteFile(filepath.Join(dir, "results.md"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(dir, "report.html"), page, 0o644),
	)
}
