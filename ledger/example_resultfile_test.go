package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// Project is an object whose builds run in a sandbox. The sandbox writes the report of a build to results, under the ID of the operation.
type Project struct {
	st      *dohost.State
	build   *ledger.Kind[string, string]
	sandbox func(ctx context.Context, id ledger.ID, commit string) error
}

// Build builds a commit once, also if its process ends before the sandbox does.
func (p *Project) Build(ctx context.Context, commit string) (string, error) {
	return ledger.Do(ctx, p.st, p.build, commit, func(ctx context.Context, id ledger.ID) (string, error) {
		if err := p.sandbox(ctx, id, commit); err != nil {
			return "", err
		}
		report, _, err := p.build.Find(ctx, id, commit)
		return report, err
	})
}

func ExampleFindResult() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	results := ledger.ResultDir(filepath.Join(dir, "results"))
	build := ledger.Kind[string, string]{
		Name: "build", Same: ledger.Whole[string], Policy: ledger.PolicyReconcile, Find: ledger.FindResult[string, string](results, ledger.AnswerUnknown),
		Unknown: func(_ ledger.ID, commit string) string { return "commit " + commit + " may have been built" },
	}
	runs := 0
	sandbox := func(_ context.Context, id ledger.ID, commit string) error {
		runs++
		if err := results.Write(id, "report of "+commit); err != nil {
			return err
		}
		return errors.New("connection reset") // the object does not get the answer
	}
	const projects = dohost.Namespace[Project]("project")
	host, err := dohost.Open(filepath.Join(dir, "data"), nil, dohost.Bind(projects,
		func(_ context.Context, st *dohost.State) (*Project, error) { return &Project{st, &build, sandbox}, nil },
		&dohost.Handlers[Project]{Extensions: []dohost.ClassExtension{ledger.Declare(&build)}}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()
	report, err := dohost.Call(context.Background(), projects.Get(host, "p"), (*Project).Build, "9f2c")
	fmt.Println(report, err, runs)
	// Output: report of 9f2c <nil> 1
}
