package chattest

// Explore is Tool without output, so that a test can expect failures.
var Explore = explore
