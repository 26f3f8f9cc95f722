package embedded

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

type connection = *nats.Conn

// node is a server in this process.
type node struct {
	config
	server   *server.Server
	password string // of both users, which only this process knows
}

// The users of a server.
const (
	appUser    = "app"
	systemUser = "system"
)

// maxMemory bounds the streams that the server keeps in memory. The streams of dohost are in files.
const maxMemory = 64 << 20

// startTime is the time that a server has to open its ports, on a busy machine.
const startTime = 20 * time.Second

// routeTime is the time of a TLS handshake between servers, for a busy machine.
const routeTime = 5.0 // in seconds

// start starts a server. It may have no connection to another one when start returns.
func start(c config, secret []byte) (*node, error) {
	n := &node{config: c, password: rand.Text()}
	var o server.Options
	err := o.ProcessConfigString(fmt.Sprintf(`
		accounts {
			SYS { users: [{ user: %s, password: %q }] }
			APP { jetstream: enabled, users: [{ user: %s, password: %q }] }
		}
		system_account: SYS`, systemUser, n.password, appUser, n.password))
	if err != nil {
		return nil, err
	}
	// A server without a listener for clients does not start its routes, so it has one on loopback, which refuses everyone without the password.
	o.ServerName, o.Host, o.Port, o.NoSigs = c.name, "127.0.0.1", server.RANDOM_PORT, true
	o.JetStream, o.StoreDir, o.SyncAlways, o.JetStreamMaxMemory = true, c.dir, true, maxMemory
	if len(c.routes) > 1 {
		o.Cluster = server.ClusterOpts{Name: "dohost", Host: c.listen.host, Port: c.listen.port, TLSTimeout: routeTime, NoAdvertise: true}
		if o.Cluster.TLSConfig, err = routeTLS(secret); err != nil {
			return nil, err
		}
		for _, r := range c.routes { // with its own one: their number is the size of the cluster
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort(r.host, strconv.Itoa(r.port))})
		}
	}
	if n.server, err = server.NewServer(&o); err != nil {
		return nil, err
	}
	log := &serverLog{log: c.log.With("nats_server", c.name), last: make(map[string]time.Time)}
	n.server.SetLoggerV2(log, false, false, false)
	n.server.Start()
	for begun := time.Now(); ; {
		ready := n.server.ReadyForConnections(100 * time.Millisecond)
		if err = log.failure(); err == nil && !ready && time.Since(begun) > startTime {
			err = errors.New("it does not listen")
		}
		if err != nil {
			n.stop()
			return nil, err
		}
		if ready {
			return n, nil
		}
	}
}

// routeTLS returns the configuration of routes. All nodes have the same key and the same certificate, and trust no other certificate.
func routeTLS(secret []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "dohost routes of NATS servers", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	const name = "dohost"
	// The times are fixed, so that the certificates are equal, and valid if clocks differ.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, SubjectKeyId: []byte(name),
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(own)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: own}},
		RootCAs:      trusted, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: name, MinVersion: tls.VersionTLS13,
	}, nil
}

// connect connects both users to the server.
func (n *node) connect() (app, system connection, err error) {
	dial := func(user string) (connection, error) {
		return nats.Connect("", nats.InProcessServer(n.server), nats.Name("dohost"), nats.UserInfo(user, n.password),
			nats.MaxReconnects(-1), nats.ReconnectWait(retryTime))
	}
	if app, err = dial(appUser); err != nil {
		return nil, nil, fmt.Errorf("--nats-server: %w", err)
	}
	if system, err = dial(systemUser); err != nil {
		app.Close()
		return nil, nil, fmt.Errorf("--nats-server: %w", err)
	}
	return app, system, nil
}

// absent returns the names of the servers without a route to this one.
func (n *node) absent() (names []string) {
	connected := []string{n.name}
	if routes, err := n.server.Routez(nil); err == nil {
		for _, r := range routes.Routes {
			connected = append(connected, r.RemoteName)
		}
	}
	for _, r := range n.routes {
		if !slices.Contains(connected, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

func (n *node) stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}
