// Package e2e runs the published clients of the Agents SDK and of Durable Streams, from npm, against a real server: in Node.js and in a
// browser, over a proxy that records the frames.
//
//	go test -tags e2e ./e2e            needs node, npm and chromium; npm installs into node_modules
//	go test -tags e2e ./e2e -update    rewrites testdata/frames.json, the recordings
//	go test -tags e2e ./e2e -run Consumer -kill-for 60s    kills consumers of streams and their servers for a minute
//
// TestPage uses the page of the real dohost, which needs only chromium, and checks every frame that is painted;
// TestPageContinuesOnAnotherNode kills a node of a cluster in the middle of an answer; TestPageDecides lets an operator decide about tool
// calls and operations; TestPageModel tests its pure modules in Node.
//
// TestStreamsConform runs the published conformance tests of Durable Streams against dohost serve --streams, also while objects are evicted
// and the server is killed. TestStreamsPublishedClient runs the published client while the server is killed.
//
// The cases are in js/cases, their agents in server. Without the tag there is one test: the recordings contain the
// examples of docs/wire.md.
package e2e
