// Package openai has models for the OpenAI API, and for all servers that implement it, such as Ollama, vLLM, and
// gateways.
//
//	model, err := openai.NewResponses("gpt-5.2", nil)
//
// [Responses] is for OpenAI itself: an interrupted reply is fetched by its id, and billed once. [Completions] is for
// compatible servers. Both are a [chat.Model], for [chat.Answer].
//
// The package is a module of its own, so only programs that import it require the SDK, which takes longer to compile
// than the rest of a server.
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

// Options are the options that both APIs share. The zero Options mean the defaults.
type Options struct {
	// Key is the API key. Empty means OPENAI_API_KEY of the environment. It is optional if BaseURL is set.
	Key string
	// BaseURL is the URL of the API, such as "http://127.0.0.1:11434/v1". Empty means OPENAI_BASE_URL of the environment,
	// or else OpenAI itself.
	BaseURL string
	// Client makes the requests. Nil means the SDK's client.
	Client *http.Client
	// Retries bounds the retries of a request that the provider refused temporarily (408, 409, 429, 5xx) or that could
	// not be sent. A retry waits as long as the provider asks for. Zero means 2; negative means none. An answer that has
	// begun is not retried.
	Retries int
	// Strategy determines how the model continues an interrupted text. Empty means [chat.ContinueSyntheticMessage].
	Strategy chat.Strategy
}

// client returns a client of the SDK, and the provider's name and key.
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
		opts = append(opts, option.WithAPIKey("none")) // other servers require a header and ignore its value
	}
	if base != "" {
		opts = append(opts, option.WithBaseURL(base))
	}
	if o.Client != nil {
		opts = append(opts, option.WithHTTPClient(o.Client))
	}
	return sdk.NewClient(opts...), p, nil
}

// failed converts an error of the SDK.
func failed(ctx context.Context, p provider.Provider, err error, opened bool) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Response != nil && ctx.Err() == nil {
		return p.Refused(e.Response, e.Message)
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok && ctx.Err() == nil {
		return p.StreamError(e.Message)
	}
	return p.Failed(ctx, err, opened)
}

// finishReasons are the reasons of a model that stopped early, in the words of the AI SDK.
var finishReasons = map[string]string{
	"length": "length", "max_output_tokens": "length", "content_filter": "content-filter",
}
