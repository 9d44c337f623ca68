.DEFAULT_GOAL := help
.PHONY: help dev build test race lint fmt bench bench-hot bench-rate bench-tenants bench-history fuzz model torture clean

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 20s
DATA ?= celld-data

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: build ## build celld and run a whole platform on ./celld-data (DATA=DIR, ARGS="--fixture --isolate")
	./bin/celld dev --data $(DATA) $(ARGS)

build: ## build bin/celld
	go build -o bin/celld ./cmd/celld

test: ## run all tests
	go test ./...

race: ## run all tests under the race detector
	go test -race ./...

lint: ## vet, formatting, golangci-lint
	go vet ./... ./testdata/fixture
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "make fmt formats these"; exit 1; }
	go run $(GOLANGCI) run ./...

fmt: ## format the source
	gofmt -w $$(git ls-files '*.go')

bench: build ## measure reads and writes through the gateway against a bare handler and raw Raft (ARGS="--help")
	go run ./cmd/celldbench $(ARGS)

bench-hot: build ## the same at 64 connections with one tenant that takes 20% of the load
	go run ./cmd/celldbench --hot 0.2 --connections 64 $(ARGS)

bench-rate: build ## measure how long users wait at given rates of requests, also beside one busy tenant
	go run ./cmd/celldbench rate $(ARGS)

bench-tenants: build ## make 10,000 tenants in one cell, restart it, measure what they need and how 1,000 of them are served
	go run ./cmd/celldbench tenants $(ARGS)

bench-history: build ## measure what a request costs as one tenant grows to 1,000,000 invoices
	go run ./cmd/celldbench history $(ARGS)

fuzz: ## fuzz every decoder for FUZZTIME (20s) each
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do \
	  for name in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6-); do \
	    echo "$$dir $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
	  done; done

model: ## search every run of three moves of a tenant with two faults (millions of states, 4 GiB, minutes)
	CELLD_MODEL=large go test -count=1 -timeout 30m -run TestEveryRunOfTheProtocol -v ./gateway/moves

torture: ## break a platform 300 times and count what was acknowledged (ARGS="--power --cycles 500"; about five seconds each)
	go build -tags failpoints -o bin/celld-failpoints ./cmd/celld
	go run ./cmd/celldtorture $(ARGS)

clean: ## remove what was built, not the data
	rm -rf bin
