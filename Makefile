.PHONY: help test modules check race demo

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-7s %s\n", $$1, $$2 }' Makefile

test: ## run the tests of the root module
	go test ./...

modules: ## run the tests of the other modules
	go test ./bench ./chat/anthropic ./chat/openai ./examples/models

check: ## run everything that a change must pass
	.ci/run

race: ## run the tests under the race detector (needs a C compiler)
	go test -race -timeout 15m ./... ./bench

demo: ## watch agents being evicted and coming back
	go run ./cmd/dohost demo
