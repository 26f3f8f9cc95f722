// Package agenttool is the common part of the agent tools of packages chat and inbox: their defaults, the ids and the texts of requests, and the
// limits of agents that wait for each other. It has no state, and imports no package of the module.
package agenttool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxDepth is the largest number of agents that wait for each other, without the last one, and the default.
const MaxDepth = 5

// Parameters are the parameters of an agent tool without a schema of its own.
var Parameters = json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","description":"the request, with all that the agent ` +
	`needs to know"}},"required":["message"],"additionalProperties":false}`)

// Output is the result of an agent tool.
type Output struct {
	Response string `json:"response"`
}

// Timeout returns the time limit for an option: 120 s for zero, and 0 for a negative one, which means no limit.
func Timeout(option time.Duration) time.Duration { return max(0, cmp.Or(option, 120*time.Second)) }

// RequestID returns the id of the request of the call with a key. The clients of the asked agent see the id, and must not learn the key,
// which completes a call of package chat.
func RequestID(key string) string {
	sum := sha256.Sum256([]byte("request " + key))
	return "ask_" + hex.EncodeToString(sum[:16])
}

// Message returns the text for the asked agent: the member "message" of an input, if that is a string, or else the JSON of the input.
func Message(input json.RawMessage) string {
	var in struct {
		Message *string `json:"message"`
	}
	if err := json.Unmarshal(input, &in); err != nil || in.Message == nil {
		return string(input)
	}
	return *in.Message
}

// CheckDepth returns an error if more agents wait for each other than the limit. path has all of them, from the first to the one that asks.
func CheckDepth[A fmt.Stringer](path []A, limit int) error {
	if n := len(path); n > limit {
		return fmt.Errorf("no agent was asked: %d agents would ask each other, the limit is %d: %s", n, limit, pathText(path))
	}
	return nil
}

// CheckCycle returns an error if the agent that is to be asked is one of those that wait.
func CheckCycle[A interface {
	comparable
	fmt.Stringer
}](path []A, to A) error {
	if slices.Contains(path, to) {
		return fmt.Errorf("the agent %v was not asked: it waits for this answer: %s", to, pathText(append(slices.Clone(path), to)))
	}
	return nil
}

// pathText returns a path for a model. Agent tools make no path of more than MaxDepth+1 addresses, and no address of more than 2,000
// bytes, but a program may have inserted others.
func pathText[A fmt.Stringer](path []A) string {
	var all []string
	for _, a := range path[:min(len(path), MaxDepth+1)] {
		all = append(all, fmt.Sprintf("%.2000s", a.String()))
	}
	if len(path) > len(all) {
		all = append(all, "…")
	}
	return strings.Join(all, " → ")
}
