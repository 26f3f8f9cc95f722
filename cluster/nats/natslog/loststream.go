package natslog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// begunKey is the key of a log that has had an owner. It never expires.
func (l *Log) begunKey() string { return l.cell + ".begun" }

// noteBegun writes begunKey, unless it exists, with the creation time of the stream as its value. An owner appends its first record after
// that. So a stream that is empty although the key exists has lost its records.
func (l *Log) noteBegun(ctx context.Context) error {
	m, err := l.key(ctx, l.begunKey())
	if err != nil || m.Sequence > 0 && !isDeleted(m) {
		return err
	}
	made := l.stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
	_, err = l.put(ctx, l.begunKey(), []byte(made), m.Sequence, 0)
	return err
}

// emptyReads is the number of reads that find no message before an empty stream counts as lost: a server that led the stream before may
// answer once more before it learns of the new leader.
const emptyReads = 3

// lastUnlessLost is last, with an error for an empty log that has had an owner. The servers have lost its stream, or an operator has deleted
// it, and Open has made another one. A host without a directory would begin an empty store without an error.
func (l *Log) lastUnlessLost(ctx context.Context) (sequence uint64, f frame, err error) {
	for reads := 1; ; reads++ {
		if sequence, f, err = l.last(ctx); err != nil || sequence > 0 {
			return sequence, f, err
		}
		if err = l.checkNew(ctx); !errors.Is(err, errDamaged) || reads == emptyReads {
			return 0, f, err
		}
		if err = sleep(ctx, retryTime); err != nil {
			return 0, f, err
		}
	}
}

// checkNew returns an error if an empty log has had an owner.
func (l *Log) checkNew(ctx context.Context) error {
	var had string
	switch m, err := l.key(ctx, l.begunKey()); {
	case err != nil:
		return err
	case m.Sequence > 0 && !isDeleted(m):
		had = fmt.Sprintf("key %s was written for a stream of %s", l.begunKey(), m.Data)
	default: // the key may be lost, too
		switch m, err := l.bases.GetLastMsgForSubject(ctx, l.baseSubject("*")); {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil
		case err != nil:
			return err
		default:
			had = "there is a base of it of " + m.Time.UTC().Format(time.RFC3339Nano)
		}
	}
	return fmt.Errorf("%w: stream %s is empty, but the log has had an owner: %s. Stop all nodes, and restore the streams, or export the objects from the directory of the last owner. To begin an empty log, delete the key, stream %s, and the directories of the cell",
		errDamaged, l.stream.CachedInfo().Config.Name, had, l.bases.CachedInfo().Config.Name)
}
