package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dohost/dohost"
)

// childEnv is the variable that makes the program one that is killed; it names the
// directory.
const childEnv = "DOHOST_BENCH_CHILD"

// killRounds is how often a process is killed.
const killRounds = 40

// child opens the store in a directory and says so. Whenever the object's alarm rings it
// says when, sets the alarm anew, and says that it is set: then it is killed.
func child(dir string) int {
	rang := make(chan time.Time, 1)
	h, err := openIn(dir, dohost.Options{}, func(dohost.ID, dohost.AlarmInfo) { rang <- time.Now() })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := json.NewEncoder(os.Stdout)
	ctx := context.Background()
	steps := 0
	if exists, err := h.Exists(ctx, subjects.Get(h, name(0)).ID()); err != nil || exists {
		at := <-rang
		if steps, err = dohost.Call(ctx, subjects.Get(h, name(0)), (*subject).add, 1); err == nil {
			err = out.Encode(report{Rang: at, Steps: steps})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// Overdue when the next process begins.
	_, err = dohost.Call(ctx, subjects.Get(h, name(0)), (*subject).arm, time.Now().Add(50*time.Millisecond))
	if err == nil {
		err = out.Encode(report{Armed: true, Steps: steps})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// report is what the child says.
type report struct {
	Rang  time.Time
	Armed bool
	Steps int
}

// killRecovery kills a process whose alarm is set, waits until it is due, and starts the
// next: from its start to the handler's first line.
func killRecovery(ctx context.Context, b *bench) error {
	dir, err := b.room()
	if err != nil {
		return err
	}
	hist := newHistogram()
	var last report
	for n := range killRounds + 1 {
		began, said, err := b.live(ctx, dir)
		if err != nil {
			return err
		}
		last = said
		if n == 0 {
			continue // nothing to ring yet
		}
		if said.Steps != n {
			return fmt.Errorf("the object has taken %d steps after %d kills", said.Steps, n)
		}
		if err := record(hist, said.Rang.Sub(began), 1); err != nil {
			return err
		}
		b.progress("kill %d of %d", n, killRounds)
	}
	b.add(Row{
		ID: "P12", What: "SIGKILL with an overdue alarm: start of the next process to the handler", Unit: "steps",
		Sides: []Figure{{
			Side: ours, Value: float64(last.Steps), Rounds: []float64{float64(last.Steps)}, Checked: killRounds,
			P50: time.Duration(hist.ValueAtQuantile(50)), P99: time.Duration(hist.ValueAtQuantile(99)),
		}},
		Target: Target{Text: "p50 ≤ 25 ms", P50: 25 * time.Millisecond},
		Notes:  []string{"the time from exec, with the start of Go's runtime; no request is made"},
	})
	return nil
}

// live starts a process, waits until it has set its alarm and that is due, and kills it.
func (b *bench) live(ctx context.Context, dir string) (began time.Time, said report, err error) {
	self, err := os.Executable()
	if err != nil {
		return began, said, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return began, said, err
	}
	began = time.Now()
	if err := cmd.Start(); err != nil {
		return began, said, err
	}
	in := json.NewDecoder(bufio.NewReader(out))
	for !said.Armed && err == nil {
		var line report
		if err = in.Decode(&line); err == nil {
			said.Armed, said.Steps = line.Armed, line.Steps
			if !line.Rang.IsZero() {
				said.Rang = line.Rang
			}
		}
	}
	killed := cmd.Process.Kill()
	_, rest := io.Copy(io.Discard, out)
	_ = cmd.Wait() // it was killed
	time.Sleep(60 * time.Millisecond)
	return began, said, errors.Join(err, killed, rest)
}
