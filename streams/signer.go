package streams

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/dohost/dohost"
)

// signers is the namespace of the key that signs the deliveries of a host. There is one object, webhookSigner.
const signers dohost.Namespace[signer] = "streamkey"

const webhookSigner = "webhooks"

// signer is the object of the host's key, which remains the same as long as the store exists.
type signer struct{ state *dohost.State }

// seed returns the private key's seed.
func (s *signer) seed(ctx context.Context) ([]byte, error) {
	const key = "seed"
	seed, ok, err := dohost.Get[[]byte](ctx, s.state.Storage(), key)
	if err != nil || ok {
		return seed, err
	}
	seed = make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	return seed, dohost.Put(ctx, s.state.Storage(), key, seed)
}

// signingKey signs deliveries.
type signingKey struct {
	private ed25519.PrivateKey
	id      string
	x       string // the public key, as a JWK has it
}

// signingKey returns the host's key.
func (d *directory) signingKey(ctx context.Context, h *dohost.Host) (*signingKey, error) {
	d.mu.Lock()
	key := d.key
	d.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, err := readKey(ctx, h)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key = key
	return key, err
}

// readKey asks the object for the key.
func readKey(ctx context.Context, h *dohost.Host) (*signingKey, error) {
	var seed []byte
	err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) (err error) {
		seed, err = dohost.CallNoArg(ctx, signers.Get(h, webhookSigner), (*signer).seed)
		return err
	})
	if err != nil {
		return nil, err
	}
	return newSigningKey(ed25519.NewKeyFromSeed(seed)), nil
}

// newSigningKey names a key by its thumbprint of RFC 8037.
func newSigningKey(private ed25519.PrivateKey) *signingKey {
	x := base64.RawURLEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	thumbprint := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	return &signingKey{private, "ds_" + base64.RawURLEncoding.EncodeToString(thumbprint[:]), x}
}

// sign returns the field Webhook-Signature of a body.
func (k *signingKey) sign(body []byte, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	signature := ed25519.Sign(k.private, append([]byte(t+"."), body...))
	return fmt.Sprintf("t=%s,kid=%s,ed25519=%s", t, k.id, base64.RawURLEncoding.EncodeToString(signature))
}

// jwks returns the JSON Web Key Set of the public key.
func (k *signingKey) jwks() ([]byte, error) {
	return json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "OKP", "crv": "Ed25519", "kid": k.id, "use": "sig", "alg": "EdDSA", "x": k.x},
	}})
}
