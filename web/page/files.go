// Package page is the page that a host serves: a conversation with an agent and, on the operators' listener, a live
// view of its object, with buttons that end it, and the tables of a worker pool. Its files are written by hand and served unchanged; package web serves
// the data for it.
package page

import "embed"

// Files are the page: index.html, and the files that it loads.
//
//go:embed index.html *.css *.js *.svg
var Files embed.FS
