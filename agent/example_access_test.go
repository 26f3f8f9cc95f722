package agent_test

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Notebooks is the namespace of Notebook objects. A notebook has the name of its user.
const Notebooks dohost.Namespace[Notebook] = "notebook"

// Notebook is an agent that belongs to a user.
type Notebook struct{ *agent.Agent[[]string] }

// User is the identity of a caller.
type User struct {
	Name    string
	Friends []string // the user may read their notebooks
}

func notebook(authorize func(context.Context, *dohost.AccessRequest) (dohost.Access, error)) dohost.Class {
	return agent.Bind(Notebooks,
		func(_ context.Context, a *agent.Agent[[]string]) (*Notebook, error) { return &Notebook{a}, nil },
		&agent.Handlers[Notebook, []string]{Authorize: authorize},
		agent.Callable("write", (*Notebook).Write))
}

// Write adds a line. A caller with RightsReadOnly gets the error of UpdateState. An operator, on the admin page, has
// another identity than the users: web.Operator.
func (n *Notebook) Write(ctx context.Context, line string) (string, error) {
	access, _ := dohost.AccessFrom(ctx)
	user, ok := access.Identity.(User)
	if !ok {
		user.Name = "operator"
	}
	return user.Name + " wrote", n.UpdateState(ctx, func(lines *[]string) error {
		*lines = append(*lines, line)
		return nil
	})
}

// bySession authorizes callers by a session cookie.
func bySession(sessions map[string]User) func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
	return func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		cookie, err := r.Request.Cookie("session")
		if err != nil {
			return dohost.Access{}, dohost.ErrUnauthenticated
		}
		user, ok := sessions[cookie.Value]
		switch {
		case !ok:
			return dohost.Access{}, dohost.ErrUnauthenticated
		case r.ID.Name == user.Name:
			return dohost.Access{Identity: user, Rights: dohost.RightsReadWrite}, nil
		case slices.Contains(user.Friends, r.ID.Name):
			return dohost.Access{Identity: user, Rights: dohost.RightsReadOnly}, nil
		}
		return dohost.Access{}, dohost.ErrForbidden
	}
}

// byToken authorizes callers by a bearer token, which gives access to the notebooks that exist.
func byToken(secret string) func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
	return func(ctx context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		token, _ := strings.CutPrefix(r.Request.Header.Get("Authorization"), "Bearer ")
		if r.Kind == dohost.AccessSocket && token == "" {
			token = r.Request.URL.Query().Get("token") // browsers set no headers of a WebSocket
		}
		if subtle.ConstantTimeCompare([]byte(token), []byte(secret)) == 0 {
			if r.Kind == dohost.AccessSocket {
				return dohost.Access{}, &dohost.CloseError{Code: 4401, Reason: "sign in again"}
			}
			return dohost.Access{}, dohost.ErrUnauthenticated
		}
		if exists, err := r.Exists(ctx); err != nil || !exists {
			return dohost.Access{}, dohost.ErrForbidden
		}
		return dohost.Access{Identity: User{Name: "service"}, Rights: dohost.RightsReadWrite}, nil
	}
}

// request asks a host for a notebook, and prints the answer.
func request(url, header, value string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`"a line"`))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set(header, value)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	fmt.Println(strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", res.Header.Get("X-Answer"))))
}

// withNotebooks serves calls of write at /{name}.
func withNotebooks(class dohost.Class, f func(h *dohost.Host, url string)) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, class)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := Notebooks.Get(h, strings.Trim(r.URL.Path, "/")).ID()
		ctx, err := h.AuthorizeCall(r, id, "write")
		if err == nil {
			var out []byte
			out, err = h.Invoke(ctx, id, "write", []byte(`"a line"`))
			w.Header().Set("X-Answer", string(out))
		}
		if err != nil {
			h.WriteError(w, err)
		}
	}))
	defer server.Close()
	f(h, server.URL)
}

// The session of a cookie names the caller. Each user has a notebook, and may read those of friends.
func ExampleHandlers_cookie() {
	class := notebook(bySession(map[string]User{"s3ss10n": {Name: "ada", Friends: []string{"bob"}}}))
	withNotebooks(class, func(_ *dohost.Host, url string) {
		request(url+"/ada", "Cookie", "session=s3ss10n")
		request(url+"/bob", "Cookie", "session=s3ss10n")
		request(url+"/eve", "Cookie", "session=s3ss10n")
		request(url+"/ada", "Cookie", "session=guessed")
	})
	// Output:
	// 200 "ada wrote"
	// 403
	// 403
	// 401
}

// A bearer token lets a service change the notebooks that exist, and create none.
func ExampleHandlers_bearer() {
	withNotebooks(notebook(byToken("t0ken")), func(h *dohost.Host, url string) {
		err := Notebooks.Get(h, "ada").Do(context.Background(), func(ctx context.Context, n *Notebook) error {
			return n.SetState(ctx, nil) // the program's own calls need no access
		})
		if err != nil {
			log.Fatal(err)
		}
		request(url+"/ada", "Authorization", "Bearer t0ken")
		request(url+"/new", "Authorization", "Bearer t0ken")
		request(url+"/ada", "Authorization", "Bearer guessed")
	})
	// Output:
	// 200 "service wrote"
	// 403
	// 401
}
