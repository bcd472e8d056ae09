# Everything a developer or CI does. `make help` lists it. Go (and git, for
# check) is all that must be installed; tools are Go modules pinned in
# build/tools/go.mod, Envoy comes from PyPI into a cache.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
TOOL     := $(GO) tool -modfile=build/tools/go.mod
# The same source gives the same bytes on every machine: no paths, no VCS state.
# What overlay and modfile change: see build/wasmprep.
WASM     := GOOS=wasip1 GOARCH=wasm $(GO) build -overlay $(CURDIR)/bin/wasmprep/overlay.json -modfile $(CURDIR)/bin/wasmprep/go.mod -buildmode=c-shared -trimpath -buildvcs=false -ldflags='-s -w'
# Rooms whose code runs natively; the module has one thread, so racing it is idle.
NATIVE   := build cmd control doctor gateway hostsim shared sim tokenizer
# What is compiled into the module.
MODULE   := filter shared tokenizer

# Where formatted source is; gofumpt skips testdata unless it is named.
SOURCES  := . $(wildcard filter/abi/testdata)

ENVOY    ?= 1.40.0
FUZZTIME ?= 10m
EXPLORE  ?= 1000
# Property tests draw the same cases everywhere; make explore draws new ones.
export RAPID_SEED ?= 1
DEMO     ?=
BENCH    ?=
TOKENIZERS ?=
# The package of make custom-policy.
CUSTOM   ?= examples/custom-policy
SOAK     ?=
# Of make conformance: -rewrite, -only REGEXP, -table FILE.
CONFORMANCE ?=
PIECES   ?= 200000
# Of make test-engine: -figures FILE, -events N, -requests N, -run REGEXP.
ENGINE   ?=

# Folders of a list that exist, as Go patterns.
rooms = $(foreach d,$(1),$(if $(wildcard $(d)),./$(d)/...))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: ENVOY=1.40.0,1.36.2  FUZZTIME=10m  DEMO='--requests 2000'  BENCH='--rounds 20'"

.PHONY: demo
demo: build wasm ## Play 10,000 requests against round robin, session hash and warmpath
	bin/warmpath demo $(DEMO)

.PHONY: test
test: wasm ## Run all tests that need Go alone
	@# Tests build the module by themselves, which the test cache does not see.
	$(GO) test -count=1 -timeout 5m ./...

.PHONY: build
build: ## Build bin/warmpath
	$(GO) build -trimpath -o bin/warmpath ./cmd/warmpath

.PHONY: wasm
wasm: ## Build bin/warmpath.wasm and bin/warmpath-nobody.wasm and check both
	@mkdir -p bin
	@$(GO) run ./build/wasmprep -dir bin/wasmprep
	$(WASM) -o bin/warmpath.wasm ./filter
	$(WASM) -tags noresponsebody -o bin/warmpath-nobody.wasm ./filter
	@$(GO) run ./build/modcheck bin/warmpath.wasm
	@$(GO) run ./build/modcheck --no-response-body bin/warmpath-nobody.wasm

.PHONY: custom-policy
custom-policy: ## Build a module with a rule of your own, as examples/custom-policy (CUSTOM=your/package)
	@mkdir -p bin
	@$(GO) run ./build/wasmprep -dir bin/wasmprep
	$(WASM) -o bin/$(notdir $(CUSTOM)).wasm ./$(CUSTOM)
	@$(GO) run ./build/modcheck bin/$(notdir $(CUSTOM)).wasm

.PHONY: check
check: check-format check-lint check-tidy check-generated check-reproducible check-race check-clean ## Format, lint, vet, tidy, generated files, races, clean tree: what CI runs

.PHONY: check-format
check-format:
	@echo "format (gofumpt)"
	@$(TOOL) gofumpt -d $(SOURCES) || { echo "not formatted; run: make format"; exit 1; }

.PHONY: format
format: ## Format the source
	$(TOOL) gofumpt -w $(SOURCES)

.PHONY: check-lint
check-lint:
	@echo "vet and lint, natively and as wasm"
	@$(GO) vet ./...
	@$(GO) vet -tags envoy,engine,kube ./integration/...
	@$(TOOL) golangci-lint config verify
	@$(TOOL) golangci-lint run ./...
	@lint="$$($(TOOL) -n golangci-lint)"; GOOS=wasip1 GOARCH=wasm "$$lint" run --tests=false --disable=unused $(call rooms,$(MODULE))

.PHONY: check-tidy
check-tidy:
	@echo "go.mod and go.sum are tidy"
	@for mod in $$(git ls-files 'go.mod' '*/go.mod'); do \
		(cd "$$(dirname "$$mod")" && $(GO) mod tidy -diff) || { echo "$$mod is not tidy; run: (cd $$(dirname "$$mod") && go mod tidy)"; exit 1; }; \
	done

.PHONY: check-generated
check-generated:
	@echo "generated files are up to date"
	@before="$$(git status --porcelain; git diff | sha256sum)"; $(GO) generate ./...; \
	after="$$(git status --porcelain; git diff | sha256sum)"; \
	if [ "$$before" != "$$after" ]; then git status --short; echo "go generate changed files; commit what it made"; exit 1; fi

.PHONY: check-reproducible
check-reproducible: wasm
	@echo "the module is the same bytes when built elsewhere"
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	git ls-files -z --cached --others --exclude-standard $(MODULE) build/pretty go.mod go.sum | tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory "$$dir"; \
	(cd "$$dir" && $(WASM) -o again.wasm ./filter); \
	cmp "$$dir/again.wasm" bin/warmpath.wasm

.PHONY: check-race
check-race: wasm
	@echo "tests under the race detector"
	@$(GO) test -race -timeout 15m $(call rooms,$(NATIVE))

.PHONY: check-clean
check-clean:
	@if [ -n "$${CI:-}" ] && [ -n "$$(git status --porcelain)" ]; then \
		git status --short; echo "the build or the tests left files behind; remove or ignore them"; exit 1; fi

.PHONY: envoy-test
envoy-test: build wasm ## Prove the filter in real Envoys: ENVOY=1.40.0,1.36.2
	ENVOY='$(ENVOY)' $(GO) test ./integration/envoy -tags envoy -count=1 -timeout 60m -v

.PHONY: conformance
conformance: ## Compare hostsim with real Envoys in every scenario: ENVOY=1.40.0,1.36.2
	ENVOY='$(ENVOY)' $(GO) test ./integration/conformance -tags envoy -count=1 -timeout 60m -v -run TestEnvoy $(CONFORMANCE)

.PHONY: test-engine
test-engine: ## Prove tokens, table and routing on a real vLLM, behind the gateway and Envoy (6 GB of cache)
	@$(GO) run ./integration/engine/install
	$(GO) test ./integration/engine -tags engine -count=1 -timeout 90m -v $(ENGINE)

.PHONY: kube-test
kube-test: ## Prove discovery and examples/kubernetes against a real API server (first run builds it: 7 CPU minutes)
	$(GO) test ./integration/kubernetes -tags kube -count=1 -timeout 60m -v

.PHONY: istio-test
istio-test: ## Check the Istio examples against Istio's own definitions
	cd integration/istio && $(GO) test -count=1 -timeout 60m ./...

.PHONY: bench-filter
bench-filter: build wasm ## Measure what the filter costs in Envoy and in wazero (JSON)
	@$(GO) run ./integration/benchfilter $(BENCH)

.PHONY: bench-gateway
bench-gateway: wasm ## Measure what the module costs in the embedded gateway (JSON)
	@$(GO) run ./integration/benchgateway --module bin/warmpath.wasm $(BENCH)

.PHONY: bench-admission
bench-admission: ## Prove the limits at the workers with real processes (BENCH='-requests 3000 -aborts 2000')
	@$(GO) test -tags admission ./integration/admission -v -count=1 -timeout 60m -requests 50000 -aborts 100000 $(BENCH)

.PHONY: test-replicas
test-replicas: ## Kill replicas of control under load with real processes (BENCH='-stream 300s' for streams of five minutes)
	@$(GO) test -tags admission ./integration/admission -run ReplicasOfControl -v -count=1 -timeout 30m $(BENCH)

.PHONY: test-external
test-external: ## Kill the leading server of an external NATS cluster, and measure how long nobody leads (BENCH='-trials 12 -lease 12s')
	@$(GO) test -tags admission ./integration/admission -run ExternalNATS -v -count=1 -timeout 30m $(BENCH)

.PHONY: bench-routing
bench-routing: ## Play every workload under every routing rule in virtual time (JSON; BENCH=--quick)
	@$(GO) run ./cmd/warmpath sim matrix --json $(BENCH)

.PHONY: bench-choose
bench-choose: ## Measure one routing decision natively, in V8 and in wazero (JSON)
	@$(GO) run ./integration/benchrouting $(BENCH)

.PHONY: bench-delays
bench-delays: wasm ## Measure how late gateways know of dispatches and reports, (JSON: sim/virtual/measured.json, the simulator's default)
	@$(GO) run ./integration/benchdelays $(BENCH)

.PHONY: bench-table
bench-table: ## Compare pages in shared data with a table per VM (BENCH=--quick); BENCH=-figures: page gets, tokens per MB (JSON)
	@$(GO) run ./integration/benchtable $(BENCH)

.PHONY: bench-restart
bench-restart: ## Measure how soon a restarted control service knows what engines hold (JSON)
	@$(GO) run ./integration/benchrestart $(BENCH)

.PHONY: test-tokenizers
test-tokenizers: ## Compare token ids with Hugging Face's and tiktoken's (TOKENIZERS='--vocab qwen3')
	@$(GO) run ./integration/tokenizers test $(TOKENIZERS)

.PHONY: bench-tokenizers
bench-tokenizers: ## Measure tokenising natively, in V8 and in wazero beside Hugging Face's and tiktoken
	@$(GO) run ./integration/tokenizers bench $(TOKENIZERS)

.PHONY: golden-tokenizers
golden-tokenizers: ## Train the small vocabularies of make test again and ask the reference for their ids
	@$(GO) run ./integration/tokenizers golden

.PHONY: test-pieces
test-pieces: bin/unicode/bin/python ## Compare pieces and normal forms with Hugging Face's (PIECES=200000 texts a kind)
	@$< integration/tokenizers/pretoken/cases.py $(PIECES) $$RANDOM | $(GO) run ./integration/tokenizers/pretoken

.PHONY: ucd
ucd: bin/unicode/bin/python ## Extract what tokenizers need of the Unicode database again
	@npm install --silent --no-audit --no-fund --prefix bin/unicode @unicode/unicode-9.0.0@2.0.7
	@cp build/ucd/unassigned9.mjs bin/unicode && node bin/unicode/unassigned9.mjs | $< build/ucd/extract.py > bin/unicode/ucd.txt
	@cp bin/unicode/ucd.txt build/ucd/ucd.txt && $(GO) generate ./tokenizer/ucd

bin/unicode/bin/python:
	@python3 -m venv bin/unicode && $@ -m pip install --quiet tokenizers==0.23.3 unicodedata2==16.0.0 regex==2026.11.19 tiktoken==0.14.0

.PHONY: soak
soak: wasm ## A million requests: longest callback, VM memory (SOAK='--requests 100000')
	@$(GO) run ./integration/soak --module bin/warmpath.wasm $(SOAK)

.PHONY: explore
explore: ## Try a thousand interleavings of the VMs of one proxy, and new cases of all properties (EXPLORE=5000)
	$(GO) test ./filter/transcripts -run Interleaving -count=1 -timeout 60m -interleavings $(EXPLORE)
	RAPID_SEED=0 RAPID_CHECKS=$(EXPLORE) $(GO) test -count=1 -timeout 60m \
		$$(git grep -l '"pgregory.net/rapid"' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's|^|./|')

.PHONY: strain
strain: ## The gateway's tests under the race detector, with 2,000 streams at once
	$(GO) test -race -count=1 -timeout 15m ./gateway -streams 2000

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each
	@grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
			echo "$$target in $$(dirname "$$file") for $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(FUZZTIME)' "$$(dirname "$$file")"; \
		done; \
	done

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
