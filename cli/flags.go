package cli

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
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

// chaosFlags are the flags by which incarnations end at random.
type chaosFlags struct {
	ChaosEvict string `env:"DOHOST_CHAOS_EVICT" placeholder:"200ms|0.02" help:"End incarnations: after this time on average, or with this chance per place. Off if empty or 0."`
	ChaosAt    string `env:"DOHOST_CHAOS_AT" placeholder:"PLACE,..." help:"Only at these places."`
	ChaosStyle string `env:"DOHOST_CHAOS_STYLE" default:"fence" placeholder:"STYLE" help:"How: fence, restart or crash, which also loses what is not on its way to the disk."`
	ChaosSeed  uint64 `env:"DOHOST_CHAOS_SEED" placeholder:"N" help:"Seed of the draws. Zero draws one."`
}

// chaos reads the flags.
func (f *chaosFlags) chaos() (dohost.Chaos, error) {
	c, err := dohost.ParseChaos(f.ChaosEvict, f.ChaosAt, f.ChaosStyle, f.ChaosSeed)
	if err == nil && c.Active() && c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return c, err
}

// filled says that a flag, or the variable that it comes from, was set to nothing.
func filled(flag, env, value string) error {
	if value == "" {
		return fmt.Errorf("%s, or %s, is empty", flag, env)
	}
	return nil
}

// aFolder says that a flag names something else than a folder. It may be absent.
func aFolder(flag, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return fmt.Errorf("%s %s: it is not a folder", flag, path)
	}
	return nil
}

// accessFlags say who is let in.
type accessFlags struct {
	TokenFile string `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Bearer tokens, one a line, of which a caller must present one."`
	Insecure  bool   `env:"DOHOST_INSECURE" help:"Listen beyond loopback without tokens."`
}

// tokens reads the token file, if one is given.
func (f *accessFlags) tokens() ([]string, error) {
	if f.TokenFile == "" {
		return nil, nil
	}
	tokens, err := web.ReadTokens(f.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return tokens, nil
}

// allow says why a listener may not be opened at addr.
func (f *accessFlags) allow(flag, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s %s: want host:port: %w", flag, addr, err)
	}
	if isLoopback(addr) || f.TokenFile != "" || f.Insecure {
		return nil
	}
	return fmt.Errorf("%s %s lets in others than this machine: give --token-file, or --insecure if anybody may", flag, addr)
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
		return slog.New(slog.NewJSONHandler(w, o)), nil
	case "off":
		return slog.New(slog.DiscardHandler), nil
	}
	return nil, fmt.Errorf("--log %q: want text, json or off", value)
}
