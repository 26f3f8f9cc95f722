package consumer

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxSkew bounds the difference of the clocks of the server and of the host, and the age of a delivery.
	maxSkew = 5 * time.Minute
	// keyAge is the age of the keys after which they are fetched again, and keyPause the least time between two fetches: a sender that
	// invents keys causes no more.
	keyAge, keyPause = time.Hour, 10 * time.Second
	// maxKeySet bounds the key set in bytes.
	maxKeySet = 64 << 10
)

var errSignature = errors.New("the signature is not one of the server for this body and time")

// keySet has the public keys of a server.
type keySet struct {
	fetching chan struct{} // has an element during a fetch

	mu      sync.Mutex
	keys    map[string]ed25519.PublicKey
	fetched time.Time // the last successful fetch
	tried   time.Time // the beginning of the last fetch
	failure error     // of the last fetch
}

// signature is a decoded field Webhook-Signature with the key that it names.
type signature struct {
	time  string
	bytes []byte
	key   ed25519.PublicKey
}

// signature decodes a field Webhook-Signature: t=<seconds>,kid=<name of the key>,ed25519=<base64url>. Its time is in the window.
func (s *Subscription) signature(ctx context.Context, field string) (*signature, error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(field, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	seconds, err := strconv.ParseInt(parts["t"], 10, 64)
	decoded, err2 := base64.RawURLEncoding.DecodeString(parts["ed25519"])
	if err != nil || err2 != nil || len(decoded) != ed25519.SignatureSize {
		return nil, errSignature
	}
	if d := time.Since(time.Unix(seconds, 0)); d > maxSkew || d < -maxSkew {
		return nil, errSignature
	}
	key, err := s.publicKey(ctx, parts["kid"])
	if err == nil && key == nil {
		err = errSignature
	}
	return &signature{parts["t"], decoded, key}, err
}

// of reports whether it is the signature of a body.
func (s *signature) of(body []byte) bool {
	return ed25519.Verify(s.key, append([]byte(s.time+"."), body...), s.bytes)
}

// publicKey returns a key of the server, or nil for an unknown one. One fetch runs at a time.
func (s *Subscription) publicKey(ctx context.Context, id string) (ed25519.PublicKey, error) {
	s.httpClient()
	k := &s.keys
	if key, ok, err := k.find(id); ok {
		return key, err
	}
	select {
	case k.fetching <- struct{}{}:
		defer func() { <-k.fetching }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if key, ok, err := k.find(id); ok { // another request has fetched it
		return key, err
	}
	k.begin()
	// Several senders may wait for the fetch, so it must not end with one sender's request.
	if keys, err := s.fetchKeys(context.WithoutCancel(ctx)); err == nil {
		k.set(keys)
	} else {
		k.fail(err)
	}
	key, _, err := k.find(id)
	return key, err
}

// find returns a key, or nil for an unknown one. ok is false if the keys should be fetched first.
func (k *keySet) find(id string) (key ed25519.PublicKey, ok bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key = k.keys[id]
	if key == nil && k.failure != nil {
		err = fmt.Errorf("consumer: the keys of the server: %w", k.failure)
	}
	return key, time.Since(k.tried) < keyPause || key != nil && time.Since(k.fetched) < keyAge, err
}

func (k *keySet) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried = time.Now()
}

func (k *keySet) set(keys map[string]ed25519.PublicKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.fetched, k.failure = keys, time.Now(), nil
}

func (k *keySet) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

// fetchKeys fetches the JSON Web Key Set of the server.
func (s *Subscription) fetchKeys(ctx context.Context) (map[string]ed25519.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	w, err := s.request(ctx, http.MethodGet, strings.TrimSuffix(s.Server, "/")+"/__ds/jwks.json", "", nil)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(io.LimitReader(w.Body, maxKeySet))
	if err != nil {
		return nil, err
	}
	if w.StatusCode != http.StatusOK {
		return nil, errorOf(w.StatusCode, text)
	}
	var set struct {
		Keys []struct{ Kty, Crv, Kid, X string }
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	keys := map[string]ed25519.PublicKey{}
	for _, k := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if k.Kty == "OKP" && k.Crv == "Ed25519" && err == nil && len(x) == ed25519.PublicKeySize {
			keys[k.Kid] = x
		}
	}
	return keys, nil
}
