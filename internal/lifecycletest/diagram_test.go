package lifecycletest

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestDrawn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.go")
	source := "// a ── in prose ──▶ b\n//\ta ── one step ──▶ b ── and ──▶ c\n//\tb ── back ──▶ a\n//\ta table of a and b\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[Transition]bool{{"a", "b"}: true, {"b", "c"}: true, {"b", "a"}: true}
	if got := Drawn(t, file); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
