package web_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// Diary belongs to the user of its name.
type Diary struct{}

// Diaries is the namespace of Diary objects.
const Diaries dohost.Namespace[Diary] = "diary"

// byTokenFile authorizes callers by the tokens of --token-file. users has the names of users by the identities of
// their tokens. printf %s TOKEN | sha256sum | cut -c 1-16 prints the identity of a token.
func byTokenFile(users map[string]string) func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
	return func(ctx context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		identity, _ := web.TokenIdentity(ctx)
		user, ok := users[identity]
		switch {
		case !ok:
			return dohost.Access{}, dohost.ErrUnauthenticated
		case r.ID.Name != user:
			return dohost.Access{}, dohost.ErrForbidden
		}
		return dohost.Access{Identity: user, Rights: dohost.RightsReadWrite}, nil
	}
}

// Two users have a token each, and a diary each.
func ExampleTokenIdentity() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	class := dohost.Bind(Diaries, func(context.Context, *dohost.State) (*Diary, error) { return &Diary{}, nil },
		&dohost.Handlers[Diary]{
			Authorize: byTokenFile(map[string]string{"e16a9f9862fe3184": "ada", "17c07b22c9af475e": "bob"}),
			OnHTTP: func(_ *Diary, w http.ResponseWriter, r *http.Request) {
				access, _ := dohost.AccessFrom(r.Context())
				fmt.Fprint(w, access.Identity, " reads")
			},
		})
	h, err := dohost.Open(dir, nil, class)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	handler := web.Handler(h, &web.Options{Classes: []string{"diary"}, Tokens: []string{"t0ken of ada", "t0ken of bob"}})
	for _, token := range []string{"t0ken of ada", "t0ken of bob", "guessed"} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/objects/diary/ada/http/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 403
	// 401
}
