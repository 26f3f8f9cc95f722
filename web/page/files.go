// Package page is the page that a host serves: a conversation with an agent and, on the operators'
// listener, a live view of the object that it is, with buttons that end it. Its files are written by hand
// and served as they are; package web says what else the page needs.
package page

import "embed"

// Files are the page: index.html, and what it loads.
//
//go:embed index.html *.css *.js *.svg
var Files embed.FS
