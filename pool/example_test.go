package pool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
	"github.com/dohost/dohost/web"
)

// The program of the host posts a task, and a worker in another process, which reaches the pool over HTTP, does it. A
// worker usually works until its process ends; this one ends after its first task.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, pool.Class(nil))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(web.Handler(h, &web.Options{Classes: []string{"pool"}}))
	defer server.Close()

	ctx, build := context.Background(), pool.Pools.Get(h, "build")
	posted, err := dohost.Call(ctx, build, (*pool.Pool).Post, pool.NewTask{Role: "printer", Text: "hello", CreateRole: true})
	if err != nil {
		log.Fatal(err)
	}

	client := &pool.Client{URL: server.URL + "/objects/pool/build"}
	working, stop := context.WithCancel(ctx)
	err = pool.Work(working, client, &pool.WorkOptions{Role: "printer"}, func(_ context.Context, t *pool.Task) (json.RawMessage, error) {
		defer stop()
		return json.Marshal(strings.ToUpper(t.Text))
	})
	fmt.Println("the worker has ended:", err)

	task, err := dohost.Call(ctx, build, (*pool.Pool).Task, pool.TaskQuery{Task: posted.ID})
	fmt.Println(task.Status, string(task.Result), err)
	// Output:
	// the worker has ended: context canceled
	// done "HELLO" <nil>
}
