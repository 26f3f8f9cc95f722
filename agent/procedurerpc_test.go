package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

var _ = dohost.NewProcedure("agent.test", func(_ context.Context, _ any, n int) (int, error) { return n, nil })

// TestClientsCannotCallProceduresOverWebSockets calls a procedure as a method of an agent.
func TestClientsCannotCallProceduresOverWebSockets(t *testing.T) {
	g := openGuardedHost(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	}, nil, nil)
	c := g.dial(t, "/")
	for _, name := range []string{"dohost.agent.test", "agent.test", "dohost.chat.ask"} {
		c.send(`{"type":"rpc","id":"1","method":"` + name + `","args":[1]}`)
		for {
			_, data, err := c.ws.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), `"rpc"`) {
				if want := "Method " + name + " does not exist"; !strings.Contains(string(data), want) {
					t.Errorf("%s: %s", name, data)
				}
				break
			}
		}
	}
}
