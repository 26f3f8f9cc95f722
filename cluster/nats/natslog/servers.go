package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/sharedlog"
)

// testedVersion is the oldest version of nats-server that the package was tested with.
const testedVersion = "2.15.2"

// serverReport is the part of a server's answer that checkServers reads.
type serverReport struct {
	Data struct {
		Name      string `json:"server_name"`
		Version   string `json:"version"`
		JetStream struct {
			Config *struct {
				SyncAlways bool `json:"sync_always"`
			} `json:"config"`
			Meta *struct {
				Size int `json:"cluster_size"`
			} `json:"meta"`
		} `json:"jetstream"`
	} `json:"data"`
}

// checkServers returns an error if a server that answers is too old, or does not sync each message, and the options do not accept that.
func (l *Log) checkServers(ctx context.Context) error {
	if l.options.System == nil {
		return l.checkVersion("of the connection", l.nc.ConnectedServerVersion())
	}
	reports, err := l.askServers(ctx)
	if err != nil {
		return fmt.Errorf("natslog: the servers have not reported their configuration: %w: %w", sharedlog.ErrUnavailable, err)
	}
	for _, r := range reports {
		if err := l.checkVersion(r.Data.Name, r.Data.Version); err != nil {
			return err
		}
		if !l.options.UnsafeSync && !r.Data.JetStream.Config.SyncAlways {
			return fmt.Errorf("natslog: server %s does not sync each message: want sync_interval: always in its section jetstream, or UnsafeSync", r.Data.Name)
		}
	}
	return nil
}

func (l *Log) checkVersion(server, version string) error {
	if l.options.UnsafeVersion || !olderThan(version, testedVersion) {
		return nil
	}
	return fmt.Errorf("natslog: server %s has version %s: want at least %s, or UnsafeVersion", server, version, testedVersion)
}

// olderThan compares versions of three numbers. Any other version is older.
func olderThan(version, tested string) bool {
	version, _, _ = strings.Cut(version, "-")
	numbers, want := strings.Split(version, "."), strings.Split(tested, ".")
	if len(numbers) != len(want) {
		return true
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		w, _ := strconv.Atoi(want[i])
		if err != nil || n != w {
			return err != nil || n < w
		}
	}
	return false
}

// restTime is the time that the other servers have to answer once a majority has. A server that is down does not delay a take-over by more.
const restTime = 250 * time.Millisecond

// askServers returns the answers of all servers with JetStream that answer in time: at least of as many as make a majority.
func (l *Log) askServers(ctx context.Context) (reports []serverReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	inbox := l.options.System.NewInbox()
	answers, err := l.options.System.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answers.Unsubscribe()) }()
	if err := l.options.System.PublishMsg(&nats.Msg{Subject: "$SYS.REQ.SERVER.PING.VARZ", Reply: inbox}); err != nil {
		return nil, err
	}
	size, wait := 1, ctx
	for len(reports) < size {
		if len(reports) > size/2 && wait == ctx {
			wait, cancel = context.WithTimeout(ctx, restTime)
			defer cancel()
		}
		m, err := answers.NextMsgWithContext(wait)
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, errors.New("want System to be a connection to the system account")
		}
		if err != nil && len(reports) > size/2 {
			return reports, nil // the others are down
		}
		if err != nil {
			return nil, err
		}
		var r serverReport
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return nil, err
		}
		if r.Data.JetStream.Config == nil {
			continue
		}
		if r.Data.JetStream.Meta != nil {
			size = max(size, r.Data.JetStream.Meta.Size)
		}
		reports = append(reports, r)
	}
	return reports, nil
}
