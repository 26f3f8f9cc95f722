package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
)

// Table is the [cluster.Table] of a cluster, in the bucket of the owners. The plan is a key that is written by comparing its revision. The
// record of a member is a key that expires after [Options.LeaseTime]. A hint is a message that the servers do not store.
type Table struct {
	log     *Log // its cell is the name of the cluster
	changed chan struct{}

	// mu guards known. It is not held during I/O.
	mu    sync.Mutex
	known map[string]cluster.Member // by id; the record of an id never changes. The zero Member is one that is damaged
}

// OpenTable returns the table of a cluster. It uses the connection until the connection is closed. The logs of its cells have the names
// that [CellName] returns.
func OpenTable(ctx context.Context, nc *nats.Conn, name string, o *Options) (*Table, error) {
	options, err := o.check()
	if err != nil {
		return nil, err
	}
	if !cellName.MatchString(name) || len(name) > maxClusterName {
		return nil, fmt.Errorf("natslog: cluster %q: want 1 to %d letters, digits, underscores or hyphens", name, maxClusterName)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natslog: %w", err)
	}
	t := &Table{
		log:     &Log{nc: nc, js: js, options: options, cell: name},
		changed: make(chan struct{}, 1), known: map[string]cluster.Member{},
	}
	if err := t.log.checkServers(ctx); err != nil {
		return nil, err
	}
	if t.log.owners, err = t.log.makeStream(ctx, ownerStream(options.Replicas)); err != nil {
		return nil, err
	}
	if _, err := nc.Subscribe(t.hintSubject(), func(*nats.Msg) { t.noteHint() }); err != nil {
		return nil, fmt.Errorf("natslog: %w", err)
	}
	return t, nil
}

// maxClusterName leaves room for the number of a cell in its name.
const maxClusterName = 48

// CellName returns the name of the log of a cell. It has the number of cells, so that logs are not mixed up if the plan is lost.
func CellName(name string, cell, cells int) string {
	return fmt.Sprintf("%s-%d-of-%d", name, cell, cells)
}

func (t *Table) planKey() string { return t.log.ownerKey() + ".plan" }

func (t *Table) memberKey(id string) string { return t.log.ownerKey() + ".member." + id }

func (t *Table) hintSubject() string { return "dohost.hint." + t.log.cell }

func (t *Table) noteHint() {
	select {
	case t.changed <- struct{}{}:
	default: // it has a hint
	}
}

// hint informs all nodes. A hint that is lost costs a tick.
func (t *Table) hint() { _ = t.log.nc.Publish(t.hintSubject(), nil) }

// Changed implements [cluster.Table].
func (t *Table) Changed() <-chan struct{} { return t.changed }

// TTL is the time to live of the record of a member.
func (t *Table) TTL() time.Duration { return t.log.options.LeaseTime }

// Renew implements [cluster.Table].
func (t *Table) Renew(ctx context.Context, m cluster.Member) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: t.memberKey(m.ID), Data: data}
	if _, err = t.log.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(t.TTL()), jetstream.WithRetryAttempts(0)); err != nil {
		return t.failed(err)
	}
	t.mu.Lock()
	_, known := t.known[m.ID]
	t.mu.Unlock()
	if !known { // no Read has found it yet
		t.hint()
	}
	return nil
}

// Leave implements [cluster.Table].
func (t *Table) Leave(ctx context.Context, id string) error {
	if err := t.log.owners.Purge(ctx, jetstream.WithPurgeSubject(t.memberKey(id))); err != nil {
		return t.failed(err)
	}
	t.hint()
	return nil
}

// Read implements [cluster.Table]. The leader of the stream answers all of its requests.
func (t *Table) Read(ctx context.Context) (s cluster.Snapshot, err error) {
	m, err := t.log.owners.GetLastMsgForSubject(ctx, t.planKey())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return s, t.failed(err)
	default:
		s.Revision = m.Sequence
		if err := json.Unmarshal(m.Data, &s.Plan); err != nil {
			return s, t.failed(fmt.Errorf("%w: the plan: %w", errDamaged, err))
		}
	}
	s.Members, err = t.members(ctx)
	return s, err
}

// members returns the records that have not expired, without damaged ones: a node with such a record is no member.
func (t *Table) members(ctx context.Context) (list []cluster.Member, err error) {
	info, err := t.log.owners.Info(ctx, jetstream.WithSubjectFilter(t.memberKey("*")))
	if err != nil {
		return nil, t.failed(err)
	}
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	next := make(map[string]cluster.Member, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		id := subject[strings.LastIndexByte(subject, '.')+1:]
		m, ok := known[id]
		if !ok {
			switch m, err = t.member(ctx, id); {
			case errors.Is(err, jetstream.ErrMsgNotFound):
				continue // it has expired by now
			case errors.Is(err, errDamaged):
				t.log.options.Logger.Error("a record in the table of the cluster is skipped", "error", t.failed(err))
			case err != nil:
				return nil, t.failed(err)
			}
		}
		next[id] = m
		if m.ID != "" {
			list = append(list, m)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = next
	return list, nil
}

func (t *Table) member(ctx context.Context, id string) (m cluster.Member, err error) {
	msg, err := t.log.owners.GetLastMsgForSubject(ctx, t.memberKey(id))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(msg.Data, &m); err != nil {
		return cluster.Member{}, fmt.Errorf("%w: the record of member %q: %w", errDamaged, id, err)
	}
	if m.ID != id {
		return cluster.Member{}, fmt.Errorf("%w: the record of member %q has the id %q", errDamaged, id, m.ID)
	}
	return m, nil
}

// Swap implements [cluster.Table].
func (t *Table) Swap(ctx context.Context, revision uint64, p cluster.Plan) (uint64, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	ack, err := t.log.js.PublishMsg(ctx, &nats.Msg{Subject: t.planKey(), Data: data},
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
	switch {
	case isRefused(err):
		return 0, fmt.Errorf("natslog: %w: %w", cluster.ErrConflict, err)
	case err != nil:
		return 0, t.failed(err)
	}
	t.hint()
	return ack.Sequence, nil
}

// failed adds the name of the cluster to an error.
func (t *Table) failed(err error) error {
	if isTransient(err) {
		return fmt.Errorf("natslog: table of cluster %s: %w: %w", t.log.cell, sharedlog.ErrUnavailable, err)
	}
	return fmt.Errorf("natslog: table of cluster %s: %w", t.log.cell, err)
}
