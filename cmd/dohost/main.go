// Command dohost runs Durable Objects: the built-in classes, a demonstration under
// chaos, and the tools of an operator.
package main

import (
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/examples/counter"
)

func main() { cli.Main(counter.Class()) }
