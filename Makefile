.PHONY: help test modules check race proof demo

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-7s %s\n", $$1, $$2 }' Makefile

test: ## run the tests of the root module
	go test ./...

modules: ## run the tests of the other modules
	go test ./bench ./chat/anthropic ./chat/openai ./cluster/nats/... ./examples/models
	GOWORK=off go -C examples/orders test ./...

check: ## run everything that a change must pass
	.ci/run

race: ## run the tests under the race detector (needs a C compiler)
	go test -race -timeout 15m ./... ./bench

proof: ## measure how many of 500 generated mutations the tests find (hours; continues when repeated)
	GOWORK=off go -C tools run ./mutate -sample 500 -seed 1 -cache mutate/results.jsonl

demo: ## watch agents being evicted and coming back
	go run ./cmd/dohost demo
