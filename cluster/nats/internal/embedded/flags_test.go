package embedded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/cluster/nats/natslog"
)

var discard = slog.New(slog.DiscardHandler)

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFlagsThatAreWrong changes one flag of correct ones in each case. No server starts.
func TestFlagsThatAreWrong(t *testing.T) {
	secret := secretFile(t)
	correct := func() *Flags {
		return &Flags{
			Flags: natslog.Flags{Cell: "main", Replicas: 3, Secret: secret},
			Name:  "n1", Routes: []string{"n1=127.0.0.1:1", "n2=127.0.0.1:2", "n3=127.0.0.1:3"},
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a server that starts waits for others
	defer cancel()
	if _, err := correct().config(discard); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Flags){
		"want --nats-server, too":      func(f *Flags) { f.Name = "" },
		"want neither --cluster":       func(f *Flags) { f.Cluster = "nats://127.0.0.1:4222" },
		"nor --cluster-system":         func(f *Flags) { f.System = "nats://127.0.0.1:4222" },
		"want --nats-routes and":       func(f *Flags) { f.Routes = nil },
		"and --cluster-secret, too":    func(f *Flags) { f.Secret = "" },
		"--cluster-secret: open":       func(f *Flags) { f.Secret += "absent" },
		"want a name in --nats-routes": func(f *Flags) { f.Name = "n4" },
		"want at least 3 servers":      func(f *Flags) { f.Routes, f.Replicas = f.Routes[:2], 1 },
		"has only 3 servers":           func(f *Flags) { f.Replicas = 5 },
		"this name or this address":    func(f *Flags) { f.Routes[2] = "n2=127.0.0.1:3" },
		`"n3=127.0.0.1:2": another`:    func(f *Flags) { f.Routes[2] = "n3=127.0.0.1:2" },
		"want NAME=HOST:PORT":          func(f *Flags) { f.Routes[2] = "127.0.0.1:3" },
		`"n 3=127.0.0.1:3": want`:      func(f *Flags) { f.Routes[2] = "n 3=127.0.0.1:3" },
		"want the host":                func(f *Flags) { f.Routes[2] = "n3=:3" },
		`port "0"`:                     func(f *Flags) { f.Routes[2] = "n3=127.0.0.1:0" },
		"missing port":                 func(f *Flags) { f.Routes[2] = "n3=127.0.0.1" },
		`--nats-listen "x"`:            func(f *Flags) { f.Listen = "x" },
	} {
		f := correct()
		change(f)
		if _, err := f.OpenLog(ctx, discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		if f.server != nil {
			t.Errorf("%s: a server has started", want)
			f.Stop()
		}
	}
}

// TestServerOfOneNode has a server without others, for development. Only its process has its password.
func TestServerOfOneNode(t *testing.T) {
	f := &Flags{
		Flags: natslog.Flags{Cell: "main", Replicas: 1, UnsafeReplicas: true, Secret: secretFile(t)},
		Name:  "n1", Routes: []string{"n1=127.0.0.1:1"}, Dir: t.TempDir(),
	}
	l, err := f.OpenLog(t.Context(), discard)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	at := f.server.server.ClientURL()
	for _, o := range []nats.Option{nats.Name("none"), nats.UserInfo(appUser, "x"), nats.UserInfo(systemUser, "")} {
		if nc, err := nats.Connect(at, o); err == nil {
			nc.Close()
			t.Error("a client without the password is connected")
		}
	}
	if !strings.HasPrefix(at, "nats://127.0.0.1:") || f.server.server.MonitorAddr() != nil {
		t.Errorf("clients connect to %s, monitors to %v", at, f.server.server.MonitorAddr())
	}
}

func TestServerWhosePortIsTaken(t *testing.T) {
	f := &Flags{
		Flags: natslog.Flags{Cell: "main", Replicas: 3, Secret: secretFile(t)},
		Name:  "n1", Routes: []string{"n1=127.0.0.1:1", "n2=127.0.0.1:2", "n3=127.0.0.1:3"}, Listen: "192.0.2.1:1", Dir: t.TempDir(),
	}
	if _, err := f.OpenLog(t.Context(), discard); err == nil || !strings.Contains(err.Error(), "--nats-server: Error listening on router port") {
		t.Error(err)
	}
	f.Stop()
}
