package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
)

// TestAddressesOfNodes has addresses that are refused, accepted with a warning, or accepted.
func TestAddressesOfNodes(t *testing.T) {
	const good, warned, refused = "good", "warned", "refused"
	for address, want := range map[string]string{
		"http://10.0.0.7:8787": good, "https://node-1.example": good, "http://[fd00::7]:1": good, "http://localhost.example": good,
		"http://127.0.0.1:8787": warned, "http://127.1.2.3": warned, "https://[::1]:1": warned, "http://[::ffff:127.0.0.1]:1": warned, "http://LocalHost:1": warned,
		"http://0.0.0.0:8787": refused, "https://[::]:8787": refused, "http://[::ffff:0.0.0.0]:1": refused, "http://[::%25eth0]:1": refused,
	} {
		var log bytes.Buffer
		o := &Options{
			Table: tableOf{}, TTL: time.Second, Advertise: address, Secret: []byte(testSecret), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Log:  func(context.Context, int) (sharedlog.Log, error) { return nil, nil },
			Open: func(int, sharedlog.Lease, dohost.Remote) (Host, error) { return nil, nil },
		}
		got := good
		if _, err := o.check(); err != nil {
			got = refused
		} else if strings.Contains(log.String(), "address="+address) {
			got = warned
		}
		if got != want {
			t.Errorf("%s is %s, want %s: %s", address, got, want, &log)
		}
	}
}
