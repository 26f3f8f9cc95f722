package provider

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/dohost/dohost/chat"
)

// Output is the schema of an answer, for a provider that generates answers by a schema.
type Output struct {
	// Schema has no bounds of numbers, lengths and lists, which not all providers accept.
	Schema map[string]any
	// Closed reports that each value has a type, and that no object has members of other names than those in the schema.
	Closed bool
	// Complete reports that no member of an object may be missing.
	Complete bool
}

// bounds are the members of schemas that Output.Schema does not have.
var bounds = map[string]bool{
	"minimum": true, "maximum": true, "exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": true,
	"minLength": true, "maxLength": true, "minItems": true, "maxItems": true, "$schema": true,
}

// OutputOf returns the schema of the answer to a prompt. ok is false if there is none, or if it is not one of an object, which all
// providers require.
func OutputOf(p *chat.Prompt) (o Output, ok bool) {
	var schema map[string]any
	if p.Output == nil || json.Unmarshal(p.Output, &schema) != nil || schema["type"] != "object" {
		return o, false
	}
	o = Output{Closed: true, Complete: true}
	o.Schema = o.convert(schema)
	return o, true
}

// convert returns a schema without bounds, and clears Closed and Complete if it is not.
func (o *Output) convert(schema map[string]any) map[string]any {
	to := map[string]any{}
	for name, v := range schema {
		switch of, isSchema := v.(map[string]any); {
		case bounds[name]:
		case name == "properties" && isSchema:
			members := map[string]any{}
			for member, v := range of {
				members[member] = o.value(v)
			}
			to[name] = members
		case isSchema: // items, additionalProperties
			to[name] = o.value(v)
		default:
			to[name] = v
		}
	}
	if _, typed := schema["type"]; !typed {
		o.Closed = false
	}
	if members, isObject := schema["properties"].(map[string]any); isObject || mayBeObject(schema["type"]) {
		o.Closed = o.Closed && schema["additionalProperties"] == false
		required, _ := schema["required"].([]any)
		o.Complete = o.Complete && len(required) == len(members)
	}
	return to
}

// mayBeObject reports whether a type of a schema, or a list of types, includes objects.
func mayBeObject(of any) bool {
	list, _ := of.([]any)
	return of == "object" || slices.Contains(list, any("object"))
}

// value returns the converted schema of a value. A schema that is true or false has no type.
func (o *Output) value(v any) any {
	schema, ok := v.(map[string]any)
	if !ok {
		o.Closed = false
		return v
	}
	return o.convert(schema)
}

// RefusedOutputs remembers the schemas that a server has refused, at most maxRefused. The zero value is ready for use, by any goroutine.
type RefusedOutputs struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]bool
}

// maxRefused bounds RefusedOutputs. The schemas of a program are usually few: each belongs to a type.
const maxRefused = 1000

// Has reports whether the server has refused the schema of a prompt.
func (r *RefusedOutputs) Has(p *chat.Prompt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[sha256.Sum256(p.Output)]
}

// Add records that the server has refused the schema of a prompt. Beyond maxRefused it forgets all others.
func (r *RefusedOutputs) Add(p *chat.Prompt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRefused {
		r.known = map[[sha256.Size]byte]bool{}
	}
	r.known[sha256.Sum256(p.Output)] = true
}

// Refuses reports whether the response to a request states that the request is invalid and names one of the words.
func Refuses(status int, text string, words ...string) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
