// Package openai has models of OpenAI answer, and those of all servers that speak its API: the one of Ollama, of
// vLLM, of a gateway.
//
//	model, err := openai.NewResponses("gpt-5.2", nil)
//
// [Responses] is for OpenAI itself: a reply that was cut off is fetched by its id, and billed once. [Completions]
// is what compatible servers have. Both are a [chat.Model], for [chat.Answer].
//
// It is linked by who imports it alone: the SDK beneath takes longer to compile than the rest of a server.
package openai

import (
	"context"
	"errors"
	"net/http"
	"os"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// Options are what both APIs have. The zero Options mean the defaults.
type Options struct {
	// Key is the API's key. Empty means OPENAI_API_KEY of the environment; there need be none if BaseURL is set.
	Key string
	// BaseURL is where the API is, as "http://127.0.0.1:11434/v1". Empty means OPENAI_BASE_URL of the
	// environment, or else OpenAI itself.
	BaseURL string
	// Client makes the requests. Nil means that of the SDK.
	Client *http.Client
	// Retries is how often a request is made again which was refused for now (408, 409, 429, 5xx) or could not be
	// made, after as long as the provider has asked for. Zero means 2; negative, never. An answer that has
	// begun is not.
	Retries int
	// Strategy is how the model goes on with a text that was cut off. Empty means [chat.SyntheticMessage].
	Strategy chat.Strategy
}

// client is the SDK's, with what it is asked with.
func (o *Options) client() (sdk.Client, provider.Provider, error) {
	p := provider.Provider{Name: "openai", Key: o.Key}
	if p.Key == "" {
		p.Key = os.Getenv("OPENAI_API_KEY")
	}
	base := o.BaseURL
	if base == "" {
		base = os.Getenv("OPENAI_BASE_URL")
	}
	if p.Key == "" && base == "" {
		return sdk.Client{}, p, errors.New("openai: no key: set Options.Key, or OPENAI_API_KEY")
	}
	opts := []option.RequestOption{option.WithMaxRetries(2), option.WithMiddleware(provider.Watch)}
	if o.Retries != 0 {
		opts = append(opts, option.WithMaxRetries(max(0, o.Retries)))
	}
	if p.Key != "" {
		opts = append(opts, option.WithAPIKey(p.Key))
	} else {
		opts = append(opts, option.WithAPIKey("none")) // servers of one's own want a header, and read nothing in it
	}
	if base != "" {
		opts = append(opts, option.WithBaseURL(base))
	}
	if o.Client != nil {
		opts = append(opts, option.WithHTTPClient(o.Client))
	}
	return sdk.NewClient(opts...), p, nil
}

// failed is an error of the SDK.
func failed(ctx context.Context, p provider.Provider, err error, opened bool) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Response != nil && ctx.Err() == nil {
		return p.Refused(e.Response, e.Message)
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok && ctx.Err() == nil {
		return p.Said(e.Message)
	}
	return p.Failed(ctx, err, opened)
}

// ends are reasons for which a model stops before it has said everything, as the AI SDK calls them.
var ends = map[string]string{
	"length": "length", "max_output_tokens": "length", "content_filter": "content-filter",
}
