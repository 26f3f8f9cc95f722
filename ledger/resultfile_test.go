package ledger_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

const someID = ledger.ID("op_7bs0000000000000000000000g")

func TestResultFiles(t *testing.T) {
	d := ledger.ResultDir(filepath.Join(t.TempDir(), "new", "results"))
	path, err := d.Path(someID)
	if err != nil || path != filepath.Join(string(d), string(someID)+".json") {
		t.Fatalf("the path is %q, %v", path, err)
	}
	find := func(absent ledger.Answer) (string, ledger.Answer, error) {
		return ledger.FindResult[charge, string](d, absent)(t.Context(), someID, charge{})
	}
	for _, absent := range []ledger.Answer{ledger.AnswerUnknown, ledger.AnswerNotDone} {
		if got, answer, err := find(absent); got != "" || answer != absent || err != nil {
			t.Errorf("without a file: %q, %d, %v", got, answer, err)
		}
	}
	for _, want := range []string{"r_1", "r_2"} {
		if err := d.Write(someID, want); err != nil {
			t.Fatal(err)
		}
		if want == "r_1" { // a second name shows that the next Write replaces the file, and does not change its content
			if err := os.Link(path, path+".link"); err != nil {
				t.Fatal(err)
			}
		}
		if got, answer, err := find(ledger.AnswerNotDone); got != want || answer != ledger.AnswerDone || err != nil {
			t.Errorf("%q, %d, %v; want %q", got, answer, err, want)
		}
	}
	if err := d.Write(someID, strings.Repeat("x", 8*mebibyte)); !isLimitError(err) {
		t.Errorf("a large result: %v", err)
	}
	if err := d.Write(someID, make(chan int)); err == nil {
		t.Error("a result without JSON was written")
	}
	if got, _, err := find(ledger.AnswerNotDone); got != "r_2" || err != nil {
		t.Errorf("after refused results: %q, %v", got, err)
	}
	if data, err := os.ReadFile(path + ".link"); err != nil || string(data) != `"r_1"` {
		t.Errorf("the first file has %q, %v", data, err)
	}
	files, err := os.ReadDir(string(d))
	if err != nil || len(files) != 2 {
		t.Errorf("the directory has %v, %v", files, err)
	}
	if _, answer, err := find(ledger.AnswerDone); answer != ledger.AnswerUnknown || !errors.Is(err, dohost.ErrMisuse) {
		t.Errorf("the answer Done for a missing file: %d, %v", answer, err)
	}
	for _, id := range []ledger.ID{
		"", "op_", "op_../../../../../etc/pa", someID + "0", "../" + someID, someID[:10] + "/../" + someID[10:], someID[:10] + "\n" + someID[10:], "OP_7bs0000000000000000000000g",
	} {
		_, pathErr := d.Path(id)
		_, answer, findErr := ledger.FindResult[charge, string](d, ledger.AnswerNotDone)(t.Context(), id, charge{})
		for _, err := range []error{pathErr, d.Write(id, 1), findErr} {
			if !errors.Is(err, dohost.ErrMisuse) || answer != ledger.AnswerUnknown {
				t.Errorf("the ID %q: %d, %v", id, answer, err)
			}
		}
	}
}

func isLimitError(err error) bool {
	_, ok := errors.AsType[*dohost.LimitError](err)
	return ok
}

// TestResultFileWithDamage reads files that are no results: none of them is an answer, and none repeats the call.
func TestResultFileWithDamage(t *testing.T) {
	write := func(text string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, test := range map[string]struct {
		make func(path string) error
		want string // of the error
	}{
		"empty":     {write(""), "cannot be decoded"},
		"half":      {write(`"receip`), "cannot be decoded"},
		"two":       {write(`"a" "b"`), "cannot be decoded"},
		"another":   {write(`{"A":1}`), "cannot be decoded"},
		"large":     {write(`"` + strings.Repeat("x", 8*mebibyte) + `"`), "file of the result has 8388609 bytes"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "is no regular file"},
		"link":      {func(path string) error { return os.Symlink("/dev/zero", path) }, "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := ledger.ResultDir(t.TempDir())
			s := newShop(ledger.PolicyReconcile)
			s.kind.Find = ledger.FindResult[charge, string](d, ledger.AnswerNotDone)
			s.after = func(_ context.Context, id ledger.ID) error {
				path, err := d.Path(id)
				return errors.Join(errTimeout, err, test.make(path))
			}
			s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
				_, err := pay(t.Context(), o)
				if unknownID(t, err); !strings.Contains(err.Error(), test.want) || len(s.calls()) != 1 {
					t.Errorf("%d calls, %v", len(s.calls()), err)
				}
			})
		})
	}
}

// TestResultFileAtEveryPoint ends incarnations at every point of a call that writes its result to a file after its effect. With a file,
// no outcome is unknown, and the call is not repeated.
func TestResultFileAtEveryPoint(t *testing.T) {
	s, dir := &pointRun{shop: newShop(ledger.PolicyReconcile), mayBeUnknown: true}, ledger.ResultDir(t.TempDir())
	s.kind.Find = ledger.FindResult[charge, string](dir, ledger.AnswerUnknown)
	s.after = func(_ context.Context, id ledger.ID) error { return dir.Write(id, receipt(id)) }
	s.atReport = func(id ledger.ID) error {
		path, err := dir.Path(id)
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) {
			return errors.Join(errors.New("unknown, although there is a file"), err, statErr)
		}
		return nil
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk:  true,
		Classes:   []dohost.Class{s.class()},
		Services:  []*dohosttest.FakeService{&s.bank},
		Run:       s.pay,
		Check:     s.check,
		HadEffect: func(id string) bool { return s.bank.Effects(id) > 0 },
		Reset: func() {
			s.reported = false
			s.reset()
			if err := os.RemoveAll(string(dir)); err != nil {
				t.Error(err)
			}
		},
	}, 30, 200))
	if !t.Failed() && !pointtest.Drawn() && s.unknown == 0 {
		t.Error("no outcome was unknown")
	}
}
