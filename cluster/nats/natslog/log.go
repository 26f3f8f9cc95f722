package natslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// Options of a log. Open refuses servers on which an acknowledged record may be lost, and an option whose name begins with Unsafe accepts
// them.
type Options struct {
	// System is a connection to the system account of the servers. Open and Acquire ask each server for its version and its
	// sync_interval. Nil needs UnsafeSync, since other accounts cannot read the sync_interval.
	System *nats.Conn
	// Replicas is the number of servers that keep a record; 0 means 3.
	Replicas int
	// LeaseTime is the time after which another host replaces a silent owner, in whole seconds, and at least 2 s; 0 means 3 s.
	LeaseTime time.Duration
	// Logger gets the damage that a Table skips, and the releases that it repeats. Nil discards them.
	Logger *slog.Logger

	UnsafeReplicas bool // accept fewer than three replicas
	UnsafeSync     bool // do not check that the servers sync each record
	UnsafeVersion  bool // accept servers older than 2.15.2
}

const (
	defaultReplicas = 3
	defaultLease    = 3 * time.Second
	minLease        = 2 * time.Second
)

// check returns the options with their defaults.
func (o *Options) check() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Replicas == 0 {
		c.Replicas = defaultReplicas
	}
	if c.LeaseTime == 0 {
		c.LeaseTime = defaultLease
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Replicas < 1 || c.Replicas > 5:
		return c, fmt.Errorf("natslog: Replicas %d: want 3 to 5", c.Replicas)
	case c.Replicas < defaultReplicas && !c.UnsafeReplicas:
		return c, fmt.Errorf("natslog: Replicas %d: want at least %d, or UnsafeReplicas", c.Replicas, defaultReplicas)
	case c.LeaseTime < minLease || c.LeaseTime%time.Second != 0:
		return c, fmt.Errorf("natslog: LeaseTime %v: want whole seconds, and at least %v", c.LeaseTime, minLease)
	case c.System == nil && !c.UnsafeSync:
		return c, errors.New("natslog: System is nil: want a connection to the system account, to check the sync_interval of the servers, or UnsafeSync")
	}
	return c, nil
}

// Log is the shared log of a cell. Its methods may be called from any goroutine.
type Log struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	options Options
	cell    string
	table   *Table           // has the session of the leases; nil for sessions of single leases
	stream  jetstream.Stream // of the records
	bases   jetstream.Stream // of the contents of bases
	owners  jetstream.Stream // of the keys of owners
}

var cellName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Open returns the log of a cell, and makes its stream, and the bucket of owners, if they are absent. The log uses the connection until the
// end of its last lease; the caller closes it. The PingInterval of the connection decides how soon it leaves a server that is suspended, or whose
// machine is lost. The default of package nats is two minutes, and Flags set a second.
func Open(ctx context.Context, nc *nats.Conn, cell string, o *Options) (*Log, error) {
	options, err := o.check()
	if err != nil {
		return nil, err
	}
	if !cellName.MatchString(cell) {
		return nil, fmt.Errorf("natslog: cell %q: want 1 to 64 letters, digits, underscores or hyphens", cell)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natslog: %w", err)
	}
	l := &Log{nc: nc, js: js, options: options, cell: cell}
	if err := l.checkServers(ctx); err != nil {
		return nil, err
	}
	if l.stream, err = l.makeStream(ctx, recordStream(cell, options.Replicas)); err != nil {
		return nil, err
	}
	if l.bases, err = l.makeStream(ctx, baseStream(cell, options.Replicas)); err != nil {
		return nil, err
	}
	if l.owners, err = l.makeStream(ctx, ownerStream(options.Replicas)); err != nil {
		return nil, err
	}
	return l, nil
}

func recordStream(cell string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "dohost-" + cell, Subjects: []string{"dohost.log." + cell}, Description: "the history of a cell of dohost",
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: replicas, DenyDelete: true,
	}
}

// ownerStream is a bucket of keys, with the names that clients of buckets know. A direct read could be answered by a server that lags.
func ownerStream(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_dohost", Subjects: []string{"$KV.dohost.>"}, Description: "the owners of the cells of dohost",
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: replicas, DenyDelete: true,
		MaxMsgsPerSubject: 1, AllowMsgTTL: true,
	}
}

func (l *Log) subject() string { return "dohost.log." + l.cell }

// makeStream makes a stream, or checks the properties on which the package depends of one that exists.
func (l *Log) makeStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	var s jetstream.Stream
	err := l.persist(ctx, func(ctx context.Context) (err error) {
		s, err = l.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = l.js.Stream(ctx, want.Name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("natslog: stream %s: %w", want.Name, err)
	}
	has := s.CachedInfo().Config
	// With an older message a key would exist again when the mark of its end expires. A marker of the servers for an expired key would look
	// like the key.
	unlimited := has.MaxMsgs <= 0 && has.MaxBytes <= 0 && has.MaxAge == 0 && max(has.MaxMsgsPerSubject, 0) == want.MaxMsgsPerSubject
	switch {
	case has.Replicas != want.Replicas:
		return nil, fmt.Errorf("natslog: stream %s has %d replicas, want %d", want.Name, has.Replicas, want.Replicas)
	case has.Storage != want.Storage || has.Retention != want.Retention || has.PersistMode != want.PersistMode || !unlimited || has.AllowDirect ||
		has.AllowMsgTTL != want.AllowMsgTTL || has.SubjectDeleteMarkerTTL != 0 || !has.DenyDelete || has.Mirror != nil || len(has.Sources) > 0:
		return nil, fmt.Errorf("natslog: stream %s has another configuration than this package makes: want a file, no limits, one message for each key of a bucket, no markers of expired keys, no direct reads, no deletion of messages", want.Name)
	}
	return s, nil
}

// electionTime is longer than the servers need to elect leaders of the streams after a failure.
const electionTime = 15 * time.Second

// The times of requests to the servers.
const (
	answerTime      = 2 * time.Second
	firstAnswerTime = 500 * time.Millisecond
	retryTime       = 100 * time.Millisecond
)

// persist repeats a request for as long as an election may take, while the servers do not answer or have no leader. A request that arrives
// during an election is lost, so the first attempts are short.
func (l *Log) persist(ctx context.Context, request func(context.Context) error) error {
	return l.persistFrom(ctx, firstAnswerTime, request)
}

// persistFrom is persist with another time for the first attempt.
func (l *Log) persistFrom(ctx context.Context, wait time.Duration, request func(context.Context) error) error {
	for begun := time.Now(); ; wait = min(wait*5/4, answerTime) {
		attempt, cancel := context.WithTimeout(ctx, wait)
		err := request(attempt)
		cancel()
		switch {
		case err == nil || !isTransient(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Since(begun) > electionTime:
			return fmt.Errorf("%w: %w", sharedlog.ErrUnavailable, err)
		}
		if err := sleep(ctx, retryTime); err != nil {
			return err
		}
	}
}

// serverUnavailable is the code of the servers' errors that end by themselves, for instance those of an election.
const serverUnavailable = 503

// noPeers is the code of the error of servers that cannot make a stream because they have not heard from enough servers since their start.
const noPeers = 10005

// isTransient reports whether a later request may succeed.
func isTransient(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e.Code == serverUnavailable || e.ErrorCode == noPeers || isRefused(err)
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected)
}

// isRefused reports whether a server refused a message since another one has the expected sequence, or is about to have it.
func isRefused(err error) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// sleep waits, at most until the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
