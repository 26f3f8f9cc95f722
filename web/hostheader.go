package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// namesListener reports whether a Host header names the listener. localhost and IP addresses always do: DNS rebinding,
// an attack that gives the page's own origin to another server, needs a host name that the author of the page owns.
func namesListener(hostport string, names []string) bool {
	name := hostport
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// checkHost refuses requests with a Host that does not name the listener. Without names it refuses none.
func checkHost(names []string, next http.Handler) http.Handler {
	if len(names) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !namesListener(r.Host, names) {
			refuse(w, http.StatusForbidden, "foreign_host", "the Host header of the request does not name this listener")
			return
		}
		next.ServeHTTP(w, r)
	})
}
