// Package docs holds the project's documents, for the programs that read them.
package docs

import "embed"

// Files are the documents.
//
//go:embed *.md decisions/*.md
var Files embed.FS
