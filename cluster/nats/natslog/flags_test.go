package natslog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSecretFile has files of secrets that are refused, accepted with a warning, or accepted.
func TestSecretFile(t *testing.T) {
	const good = "0123456789abcdef"
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		fail bool
		warn bool
	}{
		"good":     {"\n" + good + " \n", 0o600, false, false},
		"group":    {good, 0o640, false, false},
		"readable": {good, 0o644, false, runtime.GOOS != "windows"},
		"short":    {good[1:] + "\n\n", 0o600, true, false},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil { // independently of the umask
			t.Fatal(err)
		}
		var log bytes.Buffer
		f := &Flags{Cluster: "nats://127.0.0.1:1", Cells: 3, Secret: path}
		// It fails in any case, later than at the secret: it has no URLs of the system account.
		_, err := f.OpenCells(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil || strings.Contains(err.Error(), "--cluster-secret: "+path) != c.fail {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(log.String(), path) != c.warn {
			t.Errorf("%s: the log is %q", name, &log)
		}
	}
}
