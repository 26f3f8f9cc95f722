package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ManageOptions tunes [Manage].
type ManageOptions struct {
	// Role is the role whose workers the daemon starts. Required.
	Role string
	// Name is the name of the daemon, unique in the pool: 1 to 128 printable ASCII characters without spaces. Empty means a random one.
	Name string
	// Wait bounds one request for restarts. Zero means 30 s; it is at least 1 ms and at most 50 s.
	Wait time.Duration
}

// Process is a worker process that a daemon starts.
type Process struct {
	// Role is the role of the worker.
	Role string
	// Conn is the connection that the worker of the process must use, for instance as its WorkOptions.Conn. It is random.
	Conn string
	// Number is the number of the restart that the pool has requested, and Reason its reason.
	Number uint64
	Reason string
}

// Manage is a daemon: it declares a role as managed, and calls run in a goroutine for each restart of the role that it takes, until
// ctx ends. It declares the role when it starts, which resets the count of restarts of a role that is given up. It declares the role again
// when the pool no longer has it as managed, for instance after a loss of the pool's data.
//
// run starts a process, waits for its end, and returns its error, or nil after a status of zero. The error is the reason of the next restart.
// Manage reports the end to the pool: the worker with the connection of the process is removed, and its tasks are pending again without a
// wait for a TTL or a lease. If run panics, Manage reports the end as well, and the panic continues.
//
// The context of run ends with ctx, or when Manage takes another restart, since the worker has not joined in time or sends no
// heartbeats: run then stops the process, and returns soon. At most one call of run is active: Manage waits for its return, and for the report,
// before it calls run again.
//
// Manage returns after the last call of run, and after the report of its end. After the end of ctx it tries to report for up to 10 s. It
// returns the cause of ctx, a refusal, or an error of the server about the request, such as the error for a wrong token. It repeats a request
// while there is no answer, or one with the status 5xx, 408 or 429.
func Manage(ctx context.Context, c *Client, o *ManageOptions, run func(context.Context, Process) error) error {
	if o == nil || run == nil {
		return refuse(ErrInvalid, "Manage without options or a function")
	}
	if err := checkNames("role", o.Role); err != nil {
		return err
	}
	wait, err := longPoll("ManageOptions", o.Wait)
	if err != nil {
		return err
	}
	m := &manager{client: c, options: *o, wait: wait, run: run, stop: func() {}}
	if m.options.Name == "" {
		m.options.Name = rand.Text()
	}
	if err := checkNames("name", m.options.Name); err != nil {
		return err
	}
	if err := m.declare(ctx); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer func() {
		end(nil)
		m.stop()
	}()
	for {
		begun := time.Now()
		started, err := m.poll(ctx, end)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if !started && time.Since(begun) < wait/2 { // the host closes, or the pool is full
			sleep(ctx, min(wait/2, time.Second))
		}
	}
}

// longPoll returns the time of a long poll, of options of a name.
func longPoll(name string, wait time.Duration) (time.Duration, error) {
	if wait == 0 {
		return 30 * time.Second, nil
	}
	if wait < time.Millisecond || wait > maxWait {
		return 0, refuse(ErrInvalid, "%s.Wait is %v: want 0 for the default, or a millisecond to %v", name, wait, maxWait)
	}
	return wait, nil
}

// manager is a daemon.
type manager struct {
	client  *Client
	options ManageOptions
	wait    time.Duration
	run     func(context.Context, Process) error
	stop    func() // ends the process, and waits for the report of its end
}

// declare declares the role.
func (m *manager) declare(ctx context.Context) error {
	var none struct{}
	return m.client.repeat(ctx, requestTimeout, "declare", DeclareRequest{Role: m.options.Role, Managed: true}, &none)
}

// poll waits for restarts, and reports whether it has begun one. end ends the daemon.
func (m *manager) poll(ctx context.Context, end context.CancelCauseFunc) (started bool, err error) {
	var polled PollResponse
	in := PollRequest{Daemon: m.options.Name, Role: m.options.Role, WaitMS: m.wait.Milliseconds()}
	switch err := m.client.repeat(ctx, m.wait+requestTimeout, "commands", in, &polled); {
	case errors.Is(err, ErrFull): // too many daemons wait, but a process may be active
		return false, nil
	case errors.Is(err, ErrNotFound): // the pool has lost its data, or the role is declared as attached
		return false, m.declare(ctx)
	case err != nil:
		return false, err
	}
	for _, c := range polled.Commands {
		if c.Role != m.options.Role {
			continue // no pool has that answer
		}
		var taken TakeResponse
		err := m.client.repeat(ctx, requestTimeout, "take", TakeRequest{Daemon: m.options.Name, Role: c.Role, Number: c.Number}, &taken)
		if errors.Is(err, ErrNotFound) {
			continue // the role is not offline any more, or another daemon has taken it
		}
		if err != nil {
			return started, err
		}
		m.stop()
		m.start(ctx, Process{Role: c.Role, Conn: rand.Text(), Number: c.Number, Reason: c.Reason}, end)
		started = true
	}
	return started, nil
}

// start calls run in a goroutine.
func (m *manager) start(ctx context.Context, p Process, end context.CancelCauseFunc) {
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	m.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		defer cancel()
		reason := "the function of the daemon has panicked"
		defer func() {
			if err := m.exited(ctx, p, reason); err != nil {
				end(err)
			}
		}()
		err := m.run(running, p)
		if reason = "the process has ended"; err != nil {
			reason = err.Error()
		}
	}()
}

// exited reports the end of a process until ctx ends, and then for a while longer.
func (m *manager) exited(ctx context.Context, p Process, reason string) error {
	in := ProcessExit{Role: p.Role, Number: p.Number, Conn: p.Conn, Reason: shorten(reason, maxError)}
	err := m.client.untilEnd(ctx, "exited", in, new(struct{}))
	if errors.Is(err, ErrNotFound) { // the pool has been reset
		return nil
	}
	if err != nil {
		return fmt.Errorf("pool: the end of a process is not reported: %w", err)
	}
	return nil
}
