package recovery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *json.Decoder
	began time.Time // before exec
}

func (o childConfig) start(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = json.NewDecoder(bufio.NewReader(out))
	p.began = time.Now()
	return p, p.cmd.Start()
}

// firstSteps reads until every worker has taken its first step, and returns the times of these steps.
func (p *process) firstSteps(workers int) (at []time.Time, replayed int64, err error) {
	for armed := false; !armed || len(at) < workers; {
		var n message
		if err := p.lines.Decode(&n); err != nil {
			return nil, 0, fmt.Errorf("%d of %d workers have resumed: %w", len(at), workers, err)
		}
		armed = armed || n.Armed
		replayed += n.Replayed
		if n.First != "" {
			at = append(at, n.At)
		}
	}
	return at, replayed, nil
}

// kill ends the process as kill -9 does.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if werr := p.cmd.Wait(); werr == nil {
		return errors.Join(err, errors.New("the process ended by itself before it was killed"))
	}
	return err
}

// close makes the process close its host, and waits for its end.
func (p *process) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// endScenario is a way to end processes, and the number of workers that are busy then.
type endScenario struct {
	workers int
	kill    bool          // else the host is closed
	work    time.Duration // approximate run time of a process
	pause   time.Duration // between the steps of a worker; the next process starts after one
	policy  ledger.Policy // of the steps as operations; zero if they are none
}

// run starts times+1 processes, one after the other, on the same directory, and ends each. It measures up to each worker's first
// step in the next process: from the order to end or, with a pause, from the start of that process.
func (e endScenario) run(ctx context.Context, o Options, dir string, times int) (took []time.Duration, b Cost, err error) {
	draw := rand.New(rand.NewPCG(o.Seed, uint64(times)))
	config := childConfig{Dir: dir, Workers: e.workers, Pause: e.pause, Policy: e.policy}
	var ended time.Time // when the previous process was ordered to end
	var replayed int64
	for n := range times + 1 {
		p, err := config.start(ctx)
		if err != nil {
			return nil, b, err
		}
		at, read, err := p.firstSteps(e.workers)
		if err != nil {
			return nil, b, errors.Join(err, p.kill())
		}
		if n > 0 {
			replayed += read
			for _, t := range at {
				took = append(took, max(0, t.Sub(ended)))
			}
		}
		// At a random time, in the middle of a step.
		time.Sleep(e.work/2 + time.Duration(draw.Int64N(int64(e.work))))
		ended = time.Now()
		if e.kill && n < times {
			err = p.kill()
		} else {
			err = p.close()
		}
		if err != nil {
			return nil, b, err
		}
		if e.pause > 0 { // until the alarm is overdue
			time.Sleep(e.pause)
			ended = time.Now()
		}
		o.progressf("%d of %d processes ended", n, times)
	}
	steps, err := e.stepsIn(ctx, dir)
	if err != nil {
		return nil, b, err
	}
	b, err = account(dir, steps)
	b.Ends, b.Replayed, b.Policy = times, replayed, e.policy
	return took, b, err
}

// stepsIn returns how many steps the workers of a store have taken. They take no more. Each step must be an operation if the
// steps have a policy.
func (e endScenario) stepsIn(ctx context.Context, dir string) (steps map[string]int, err error) {
	out, err := openBook(dir)
	if err != nil {
		return nil, err
	}
	out.stopped = true
	h, err := dohost.Open(filepath.Join(dir, storeFolder), &dohost.Options{IdleAfter: -1}, class(out))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close(), out.f.Close()) }()
	steps = map[string]int{}
	for i := range e.workers {
		w := workers.Get(h, name(i))
		n, err := dohost.Call(ctx, w, (*worker).stepCount, 0)
		if err != nil {
			return nil, err
		}
		completed, err := dohost.CallNoArg(ctx, w, (*worker).completedOperations)
		if err == nil && e.policy != 0 && completed != n {
			err = fmt.Errorf("%v has taken %d steps, and has %d completed operations", w.ID(), n, completed)
		}
		if err != nil {
			return nil, err
		}
		steps[w.ID().Name] = n
	}
	return steps, nil
}
