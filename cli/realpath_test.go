package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFoldersWithinEachOtherAreRefusedThroughLinks checks folders of records that are reached by symbolic links. Some do not exist yet.
func TestFoldersWithinEachOtherAreRefusedThroughLinks(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for _, name := range []string{"data/sub", "other/sub"} {
		if err := os.MkdirAll(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"todata": at("data"), "tosub": "data/sub", "toother": "other", "chain": "todata", "absent": at("data/new"), "relative": "data/new",
		"chained": "absent/x", "future": at("new"), "loop": "loop", "self": "none/../self", "other/up": "../data",
	} {
		if err := os.Symlink(filepath.FromSlash(target), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	const within, links = "want folders that are not within each other", "too many links"
	for _, c := range []struct{ ship, data, want string }{
		{"todata", "data", within}, {"tosub", "data", within}, {"todata/sub", "data", within}, {"todata/x/y", "data", within},
		{"chain/x", "data", within}, {"other/up/x", "data", within}, {"absent", "data", within}, {"absent/x", "data", within},
		{"relative", "data", within}, {"chained", "data", within}, {"future", "new", within}, {"future/x", "new", within},
		{"data", "tosub", within}, {"data", "todata/x", within}, {"data", "absent", within}, {"todata/a", "chain", within},
		{"self", "data", links}, {"self/x", "data", links}, {"loop", "data", links},
		{"other", "data", ""}, {"toother", "data", ""}, {"toother/x", "todata", ""}, {"future", "data", ""}, {"none/x", "data", ""},
		{"todata-2", "data", ""}, {"data2", "todata", ""},
	} {
		err := checkShip("--from", at(c.ship), at(c.data))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("--from %s --data %s: %v", c.ship, c.data, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--from")):
			t.Errorf("--from %s --data %s: %v; want %q", c.ship, c.data, err, c.want)
		}
	}
	t.Chdir(at("other"))
	if err := checkShip("--ship", "up/x", "../data"); err == nil || !strings.Contains(err.Error(), "--ship up/x and --data ../data: "+within) {
		t.Errorf("relative paths: %v", err)
	}
}
