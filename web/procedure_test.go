package web_test

import (
	"context"

	"github.com/dohost/dohost"
)

// procedureName is the name of a procedure, which no client can call.
const procedureName = "dohost.web.test"

var _ = dohost.NewProcedure("web.test", func(_ context.Context, _ any, n int) (int, error) { return n, nil })
