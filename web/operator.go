package web

import (
	"net/http"

	"github.com/dohost/dohost"
)

// Operator is the identity of requests that reach agents through [Admin]: see [dohost.Access].
type Operator struct{}

// asOperator gives requests the access of an operator, and the host calls no Authorize function for them.
func asOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := dohost.GrantAccess(r.Context(), dohost.Access{Identity: Operator{}, Rights: dohost.RightsReadWrite})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
