// Package e2e tries the published clients of the Agents SDK, as npm has them, against a real
// server: in Node.js and in a browser, over a proxy that records what is on the wire.
//
//	go test -tags e2e ./e2e            needs node, npm and chromium; npm installs into node_modules
//	go test -tags e2e ./e2e -update    rewrites testdata/frames.json, the recordings
//
// TestPage has somebody use the page of the real dohost, which needs chromium alone, and looks at every
// frame that is painted; TestPageModel tries its pure modules in Node.
//
// The cases are in js/cases, the agents that they talk to in server. Without the tag there is
// one test: the examples of docs/wire.md stand in the recordings.
package e2e
