package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// objectID is an argument that names an object.
type objectID struct{ dohost.ID }

// UnmarshalText reads class/name.
func (o *objectID) UnmarshalText(text []byte) (err error) {
	o.ID, err = dohost.ParseID(string(text))
	return err
}

// endMode is a flag that selects how an incarnation ends.
type endMode struct{ dohost.EndMode }

// UnmarshalText reads the name of a mode.
func (m *endMode) UnmarshalText(text []byte) (err error) {
	m.EndMode, err = dohost.ParseEndMode(string(text))
	return err
}

// chaosFlags are the flags of chaos, which ends incarnations at random.
type chaosFlags struct {
	ChaosEvict string `env:"DOHOST_CHAOS_EVICT" placeholder:"200ms|0.02" help:"End incarnations at random: after this time on average, or with this chance per place. Off if empty or 0."`
	ChaosAt    string `env:"DOHOST_CHAOS_AT" placeholder:"PLACE,..." help:"End incarnations only at these places."`
	ChaosMode  string `env:"DOHOST_CHAOS_MODE" default:"fence" placeholder:"MODE" help:"How to end incarnations: fence, restart or crash (${default}). A crash also loses writes that are not on their way to the disk."`
	ChaosSeed  uint64 `env:"DOHOST_CHAOS_SEED" placeholder:"N" help:"Seed of the random choices. Zero chooses a random seed."`
}

// chaos reads the flags.
func (f *chaosFlags) chaos() (dohost.Chaos, error) {
	c, err := dohost.ParseChaos(f.ChaosEvict, f.ChaosAt, f.ChaosMode, f.ChaosSeed)
	if err == nil && c.Active() && c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c, err
}

// checkFilled returns an error if a flag, or its variable, was set to an empty value.
func checkFilled(flag, env, value string) error {
	if value == "" {
		return fmt.Errorf("%s, or %s, is empty", flag, env)
	}
	return nil
}

// checkFolder returns an error if the path of a flag is a file and not a folder. The folder may be absent.
func checkFolder(flag, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return fmt.Errorf("%s %s: it is not a folder", flag, path)
	}
	return nil
}

// accessFlags select which clients may use the listeners of a server.
type accessFlags struct {
	TokenFile      string   `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Bearer tokens of clients, one a line: a request to --listen must present one."`
	AdminTokenFile string   `env:"DOHOST_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Bearer tokens of operators, one a line: a request to --admin must present one."`
	TLSCert        string   `name:"tls-cert" env:"DOHOST_TLS_CERT" placeholder:"FILE" help:"Serve HTTPS with this certificate chain, in PEM, on both listeners."`
	TLSKey         string   `name:"tls-key" env:"DOHOST_TLS_KEY" placeholder:"FILE" help:"The key of --tls-cert, in PEM."`
	BehindProxy    bool     `env:"DOHOST_BEHIND_PROXY" help:"A proxy in front of the listeners terminates TLS: allow tokens beyond loopback without --tls-cert."`
	Insecure       bool     `env:"DOHOST_INSECURE" help:"Listen beyond loopback without tokens."`
	ErrorTexts     string   `env:"DOHOST_ERROR_TEXTS" default:"auto" enum:"auto,on,off" help:"Send the texts of all errors of methods to clients: on, off, or auto, which is on if --listen is on loopback without tokens or a proxy (${default})."`
	Host           []string `env:"DOHOST_HOST" placeholder:"NAME" help:"Host names to answer to, in addition to localhost and IP addresses. Without it a listener with tokens, and --listen beyond loopback, answer to any name."`
}

// access is the result of reading the flags.
type access struct{ tokens, adminTokens, hosts []string }

// read reads the token files, if any are given.
func (f *accessFlags) read(listen string) (a access, err error) {
	if a.tokens, err = readTokens(f.TokenFile); err != nil {
		return access{}, fmt.Errorf("--token-file: %w", err)
	}
	if a.adminTokens, err = readTokens(f.AdminTokenFile); err != nil {
		return access{}, fmt.Errorf("--admin-token-file: %w", err)
	}
	for _, t := range a.tokens {
		if slices.Contains(a.adminTokens, t) {
			return access{}, errors.New("--token-file and --admin-token-file have a token in common: a client with that token would be an operator")
		}
	}
	a.hosts = f.Host
	if len(f.Host) == 0 && isLoopback(listen) && len(a.tokens) == 0 {
		a.hosts = []string{"localhost"}
	}
	return a, nil
}

// errorTexts reports whether clients get the texts of all errors.
func (f *accessFlags) errorTexts(listen string) bool {
	if f.ErrorTexts == "auto" {
		return isLoopback(listen) && f.TokenFile == "" && !f.BehindProxy
	}
	return f.ErrorTexts == "on"
}

// readTokens reads a file of tokens. No path means none.
func readTokens(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	return web.ReadTokens(path)
}

// readableByOthers reports whether every user of the machine can read a file.
func readableByOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode()&0o004 != 0
}

// allow returns an error if a listener may not be opened at addr: beyond loopback it needs the tokens of a
// file, which a flag names.
func (f *accessFlags) allow(flag, addr, tokenFlag, tokenFile string) error {
	if isUnix(addr) {
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		want := "host:port"
		if flag == "--admin" {
			want = "host:port, unix:PATH or off"
		}
		return fmt.Errorf("%s %s: want %s: %w", flag, addr, want, err)
	}
	if isLoopback(addr) {
		return nil
	}
	if tokenFile != "" && f.TLSCert == "" && !f.BehindProxy {
		return fmt.Errorf("%s %s would get tokens in clear text: give --tls-cert and --tls-key, or --behind-proxy if a proxy in front of the listener terminates TLS", flag, addr)
	}
	if tokenFile != "" || f.Insecure {
		return nil
	}
	return fmt.Errorf("%s %s is reachable from other machines: give %s, or --insecure to let anyone in", flag, addr, tokenFlag)
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newLogger reads the value of --log: a format and, after a colon, a level.
func newLogger(value string, w io.Writer) (*slog.Logger, error) {
	format, name, hasLevel := strings.Cut(value, ":")
	level := slog.LevelInfo
	if hasLevel {
		if err := level.UnmarshalText([]byte(name)); err != nil {
			return nil, fmt.Errorf("--log %q: want a level of debug, info, warn or error after the colon", value)
		}
	}
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(jsonWriter{w}, o)), nil
	case "off":
		return slog.New(slog.DiscardHandler), nil
	}
	return nil, fmt.Errorf("--log %q: want text, json or off", value)
}
