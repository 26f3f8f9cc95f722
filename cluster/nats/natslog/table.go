package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
)

// Table is the [cluster.Table] of a cluster for one node, in the bucket of the owners. The plan is a key that is written by comparing its
// revision. The record of a member is a key that expires after [Options.LeaseTime]; it is the session of the node, so one renewal extends
// the leases of all cells that the node has acquired with [Table.Log]. A hint is a message that the servers do not store.
type Table struct {
	log     *Log // its cell is the name of the cluster
	changed chan struct{}

	// turn is the right to write the record of the node, and guards the next fields. It is a channel, since it is held during I/O.
	turn chan struct{}
	self cluster.Member // the node; the zero Member before the first Renew
	next *session       // that has not begun, although its key may exist; nil if there is none

	// mu guards the rest. It is not held during I/O.
	mu    sync.Mutex
	own   *session                  // the last one that has begun; nil before that, and after Leave
	known map[string]cluster.Member // by the names of keys, whose values never change. The zero Member is one that is damaged
}

// OpenTable returns the table of a cluster. It uses the connection until the connection is closed.
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
		changed: make(chan struct{}, 1), turn: make(chan struct{}, 1), known: map[string]cluster.Member{},
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

// Log returns the log of a cell, given the number of cells, for [cluster.Options.Log]. [CellName] makes its name. Its leases are valid as long as
// the record of the node is, so Acquire waits until Renew has succeeded.
func (t *Table) Log(ctx context.Context, cell, cells int) (*Log, error) {
	l, err := Open(ctx, t.log.nc, CellName(t.log.cell, cell, cells), &t.log.options)
	if err != nil {
		return nil, err
	}
	l.table = t
	return l, nil
}

func (t *Table) planKey() string { return t.log.cell + ".plan" }

// memberKey is the name of the keys of all members, or of one session.
func (t *Table) memberKey(session string) string { return t.log.cell + "." + ofMember + "." + session }

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

// session returns the session of the node, or nil if there is none that is valid.
func (t *Table) session() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own == nil || !t.own.valid() {
		return nil
	}
	return t.own
}

func (t *Table) setSession(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = s
}

// Renew implements [cluster.Table]. All calls have the same member. If the session of the node has ended, another one begins: the leases of
// the former session stay invalid.
func (t *Table) Renew(ctx context.Context, m cluster.Member) error {
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	defer t.endTurn()
	if t.self == (cluster.Member{}) {
		t.self = m
	}
	if m != t.self {
		return fmt.Errorf("natslog: table of cluster %s: the member is %v, and was %v", t.log.cell, m, t.self)
	}
	err := error(nil)
	if s := t.session(); s != nil {
		err = s.renew(ctx)
	} else {
		err = t.begin(ctx)
	}
	if err != nil {
		return t.failed(err)
	}
	return nil
}

// begin begins a session, and ends the former one: the servers may take some seconds to let its key expire after an election, and its cells
// are not free until then. The caller has the turn.
func (t *Table) begin(ctx context.Context) error {
	t.mu.Lock()
	former := t.own
	t.mu.Unlock()
	if former != nil {
		former.lose() // its timer may be late
	}
	if t.next == nil {
		data, err := json.Marshal(t.self)
		if err != nil {
			return err
		}
		t.next = t.log.newSession(ofMember, data)
	}
	err := t.next.begin(ctx)
	if err == nil {
		t.setSession(t.next)
		if former != nil {
			_ = former.end(ctx) // otherwise its key expires
		}
		t.hint()
	}
	if err == nil || errors.Is(err, sharedlog.ErrFenced) {
		t.next = nil
	}
	return err
}

func (t *Table) takeTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Table) endTurn() { <-t.turn }

// Leave implements [cluster.Table]. id names the node. After it all cells of the node are free, and its leases are lost.
func (t *Table) Leave(ctx context.Context, id string) error {
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	defer t.endTurn()
	t.mu.Lock()
	s := t.own
	t.mu.Unlock()
	if t.next != nil {
		s = t.next // the former one has expired
	}
	switch {
	case s == nil:
		return nil
	case id != t.self.ID:
		return fmt.Errorf("natslog: table of cluster %s: the node is %q, not %q", t.log.cell, t.self.ID, id)
	}
	if err := s.end(ctx); err != nil {
		return t.failed(err)
	}
	t.next = nil
	t.setSession(nil)
	// The mark of the end lives for a second, and nodes that have read the record count it as a member until then.
	if err := t.log.owners.Purge(ctx, jetstream.WithPurgeSubject(keySubject(s.name))); err != nil {
		return t.failed(err)
	}
	t.hint()
	return nil
}

// Read implements [cluster.Table]. The leader of the stream answers all of its requests.
func (t *Table) Read(ctx context.Context) (s cluster.Snapshot, err error) {
	m, err := t.log.key(ctx, t.planKey())
	if err != nil {
		return s, t.failed(err)
	}
	if s.Revision = m.Sequence; s.Revision > 0 {
		if err := json.Unmarshal(m.Data, &s.Plan); err != nil {
			return s, t.failed(fmt.Errorf("%w: the plan: %w", errDamaged, err))
		}
	}
	s.Members, err = t.members(ctx)
	return s, err
}

// members returns the records that have not expired, without damaged ones: a node with such a record is no member. A node whose session
// has just expired may have two records.
func (t *Table) members(ctx context.Context) (list []cluster.Member, err error) {
	info, err := t.log.owners.Info(ctx, jetstream.WithSubjectFilter(keySubject(t.memberKey("*"))))
	if err != nil {
		return nil, t.failed(err)
	}
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	next := make(map[string]cluster.Member, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		session := subject[strings.LastIndexByte(subject, '.')+1:]
		m, ok := known[session]
		if !ok {
			switch m, err = t.member(ctx, session); {
			case errors.Is(err, jetstream.ErrMsgNotFound):
				continue // the record has expired by now, or the read is old: it is no reason to skip the record the next time
			case errors.Is(err, errDamaged):
				t.log.options.Logger.Error("a record in the table of the cluster is skipped", "err", t.failed(err))
			case err != nil:
				return nil, t.failed(err)
			}
		}
		next[session] = m
		if m.ID != "" && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = next
	return list, nil
}

// member returns the member with a session, or the zero Member if the session has ended.
func (t *Table) member(ctx context.Context, session string) (m cluster.Member, err error) {
	msg, err := t.log.owners.GetLastMsgForSubject(ctx, keySubject(t.memberKey(session)))
	if err != nil || isDeleted(msg) {
		return m, err
	}
	if err := json.Unmarshal(msg.Data, &m); err != nil {
		return cluster.Member{}, fmt.Errorf("%w: the record %s: %w", errDamaged, t.memberKey(session), err)
	}
	if m.ID == "" {
		return m, fmt.Errorf("%w: the record %s has no id", errDamaged, t.memberKey(session))
	}
	return m, nil
}

// Swap implements [cluster.Table].
func (t *Table) Swap(ctx context.Context, revision uint64, p cluster.Plan) (uint64, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return 0, t.failed(err)
	}
	next, err := t.log.put(ctx, t.planKey(), data, revision, 0)
	switch {
	case isRefused(err):
		return 0, fmt.Errorf("natslog: %w: %w", cluster.ErrConflict, err)
	case err != nil:
		return 0, t.failed(err)
	}
	t.hint()
	return next, nil
}

// failed adds the name of the cluster to an error.
func (t *Table) failed(err error) error {
	if isTransient(err) {
		return fmt.Errorf("natslog: table of cluster %s: %w: %w", t.log.cell, sharedlog.ErrUnavailable, err)
	}
	return fmt.Errorf("natslog: table of cluster %s: %w", t.log.cell, err)
}
