# Every task of the project, each with its set-up. `make` lists them.

CARGO ?= cargo
PYTHON := .venv/bin/python

# Where Cargo builds: its own default, unless the caller moved it.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))

# Tests, lints and the binary under test share one profile, so that nothing is
# compiled twice: release without link-time optimisation, with assertions.
TEST_PROFILE := ci

FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
CRASHES ?= 1000000
KILLS ?= 100
CHAOS_SECONDS ?= 600
FRAMEWORK_SECONDS ?= 20
PROGRAMS ?= 100000
# Tests of the running server at once: one more than there are cores, as many wait.
JOBS ?= $(shell expr $$(nproc) + 1)

# What the disk tier's other engines are built from: Debian's own library of RocksDB, which
# is there in seconds where building it takes half an hour.
ENGINES := /usr/share/doc/librocksdb-dev:librocksdb-dev /usr/share/doc/libclang-dev:libclang-dev
ROCKSDB = ROCKSDB_LIB_DIR=$(dir $(shell cc -print-file-name=librocksdb.so)) ROCKSDB_INCLUDE_DIR=/usr/include

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup release ## 336,776 real flights into Snug and redis-server, side by side
	$(PYTHON) demo/flights.py --snug $(TARGET)/release/snug $(DEMO_FLAGS)

.PHONY: test
test: check unit proofs ## format, lints, Rust tests, tests of the running server: what CI runs

.PHONY: lint
lint: check ## format, lints, and the licences, sources and known weaknesses of dependencies
	@if $(CARGO) deny --version >/dev/null 2>&1; \
	then $(CARGO) deny check licenses bans sources; \
	else echo "lint: cargo-deny is not installed (cargo install --locked cargo-deny); dependencies not checked"; fi

.PHONY: release
release: ## build target/release/snug
	$(CARGO) build --release --locked --package snugdb

# The program that packages are made of: built for that, unless BINARY names one.
comma := ,
PACKAGES := $(TARGET)/packages
BINARY ?= $(TARGET)/dist/snug
# Functions that are the same to the byte are kept once. Rust's own linker for this kind
# of machine does that; others' may not know the word.
FOLDED := $(if $(filter x86_64,$(shell uname -m)),-C link-arg=-Wl$(comma)--icf=all)

.PHONY: packaged
packaged: # the program of packages
ifeq ($(BINARY),$(TARGET)/dist/snug)
	$(CARGO) rustc --profile dist --locked --package snugdb --bin snug -- $(FOLDED)
endif

.PHONY: deb
deb: packaged ## a Debian package, into target/packages
	packaging/deb/build $(BINARY) $(PACKAGES)

.PHONY: wheel
wheel: packaged ## a wheel for pip: the program, and snugdb.Server for tests
	packaging/wheel/build $(BINARY) $(PACKAGES)

.PHONY: npm
npm: packaged ## a package for npm, alike
	packaging/npm/build $(BINARY) $(PACKAGES)

.PHONY: container
container: packaged ## a container's image without a shell
	packaging/container/build $(BINARY) $(PACKAGES)

.PHONY: dist
dist: packaged ## all packages, an archive of the program, and checksums
	packaging/dist $(BINARY) $(PACKAGES)

.PHONY: bench
bench: setup release ## the whole suite beside redis-server, into docs/benchmarks.md; BENCH_FLAGS as `snug compare` takes them
	$(TARGET)/release/snug compare snug redis=redis-server --docs docs --readme README.md $(BENCH_FLAGS)

.PHONY: durability
durability: setup release ## what saving, loading and the append-only file cost, beside redis-server; DURABILITY_FLAGS="--scale 1"
	cd tests && ../$(PYTHON) -m bench.durability --snug $(TARGET)/release/snug $(DURABILITY_FLAGS)

.PHONY: replication
replication: setup release ## what replication costs and how long a failover takes, beside redis-server; REPLICATION_FLAGS="--scale 0.2 sync"
	cd tests && ../$(PYTHON) -m bench.replication --snug $(TARGET)/release/snug $(REPLICATION_FLAGS)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_SECONDS (60) each; needs nightly and cargo-fuzz
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || \
	{ echo "fuzz: needs a nightly toolchain and 'cargo install --locked cargo-fuzz'"; exit 1; }
	@set -e; for folder in $(wildcard crates/*/fuzz); do \
	  for target in $$(cd $$folder && $(CARGO) +nightly fuzz list); do \
	    echo "fuzz: $$folder $$target, $(FUZZ_SECONDS) s"; \
	    (cd $$folder && $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096); \
	  done; \
	done

.PHONY: soak
soak: setup ## SOAK_SECONDS (600) of everything at once, compared with redis-server; SOAK_FLAGS="--seed 7" repeats
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	cd tests && ../$(PYTHON) -m soak --snug $(TARGET)/$(TEST_PROFILE)/snug --seconds $(SOAK_SECONDS) $(SOAK_FLAGS)

.PHONY: crash
crash: ## stop a simulated machine CRASHES (1,000,000) times at any write; CRASH_SEED=7 begins there
	SNUG_CRASHES=$(CRASHES) SNUG_CRASH_SEED=$(or $(CRASH_SEED),$(shell date +%s)000) \
	  $(CARGO) test --locked --profile $(TEST_PROFILE) --package snug-server --lib -- persist::tests --nocapture

.PHONY: kill
kill: setup ## kill a real server under load KILLS (100) times for each appendfsync, and look for what is lost
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	SNUG_KILLS=$(KILLS) SNUG_KILL_SEED=$$(date +%s) SNUG_TEST_SECONDS=86400 \
	  tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug serve/test_persistence.py -k kill_under_load

.PHONY: engines
engines: setup ## the disk tier over RocksDB and Fjall: tests of each engine, and of a server over RocksDB
	.ci/setup $(ENGINES)
	$(ROCKSDB) $(CARGO) test --locked --profile $(TEST_PROFILE) --package snug-tier --all-features
	$(ROCKSDB) $(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb --features rocksdb
	cp $(TARGET)/$(TEST_PROFILE)/snug $(TARGET)/$(TEST_PROFILE)/snug-rocksdb
	SNUG_TIER_ENGINE=rocksdb-hybrid SNUG_TEST_SECONDS=86400 \
	  tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug-rocksdb serve/test_tier.py

.PHONY: blobs
blobs: ## the disk tier's engines on JSON blobs: rates, bytes on disk and by the device; BLOBS_FLAGS="--blobs 10000 --folder /mnt"
	.ci/setup $(ENGINES)
	$(ROCKSDB) $(CARGO) bench --locked --package snug-tier --all-features --bench disk_blobs -- --folder $(TARGET) $(BLOBS_FLAGS)

.PHONY: tier
tier: setup release ## the disk tier on ten times maxmemory: hit rate beside redis-server's, hits, misses; TIER_FLAGS="--folder /mnt hits"
	cd tests && ../$(PYTHON) -m bench.tier --snug $(TARGET)/release/snug --folder $(TARGET) $(TIER_FLAGS)

.PHONY: capture
capture: setup release ## a packet-capture pipeline at its full rate, over RESP beside redis-server and over HTTP; CAPTURE_FLAGS="--scale 0.5 http"
	cd tests && ../$(PYTHON) -m bench.capture --snug $(TARGET)/release/snug $(CAPTURE_FLAGS)

.PHONY: stalls
stalls: setup release ## what small commands wait beside unions, copies and deletes of a million items, beside redis-server
	cd tests && ../$(PYTHON) -m bench.stalls --snug $(TARGET)/release/snug $(STALLS_FLAGS)

.PHONY: programs
programs: setup ## PROGRAMS (100,000) random Lua programs, answered as redis-server does; PROGRAM_SEED=7 begins there
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	SNUG_PROGRAMS=$(PROGRAMS) SNUG_RANDOM_SEED=$(or $(PROGRAM_SEED),$(shell date +%s)) SNUG_TEST_SECONDS=86400 \
	  tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug differential/test_programs.py

.PHONY: chaos
chaos: setup ## CHAOS_SECONDS (600) of cut links and killed nodes under load, for each of two groups; CHAOS_SEED=7 repeats
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	SNUG_CHAOS_SECONDS=$(CHAOS_SECONDS) SNUG_RANDOM_SEED=$(or $(CHAOS_SEED),$(shell date +%s)) SNUG_TEST_SECONDS=86400 \
	  tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug replication/test_chaos.py -s

.PHONY: frameworks
frameworks: setup ## job queues, locks, caches and clients of five languages, FRAMEWORK_SECONDS (20) of load each
	tests/frameworks/setup debian
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	SNUG_FRAMEWORK_SECONDS=$(FRAMEWORK_SECONDS) tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug frameworks

.PHONY: bullmq
bullmq: setup release ## BullMQ beside redis-server: rates, CPU and memory of 100,000 jobs; BULLMQ_FLAGS="--rounds 1"
	tests/frameworks/setup debian
	$(PYTHON) tests/frameworks/measure.py --snug $(TARGET)/release/snug $(BULLMQ_FLAGS)

.PHONY: advise
advise: setup release ## what `snug advise` predicts of every workload, and what is used then; ADVISE_FLAGS="--scale 0.1"
	cd tests && ../$(PYTHON) -m advise --snug $(TARGET)/release/snug $(ADVISE_FLAGS)

.PHONY: miri
miri: export MIRIFLAGS := -Zmiri-permissive-provenance -Zmiri-disable-isolation
miri: ## check the unsafe modules for undefined behaviour; needs nightly with miri
	$(CARGO) +nightly miri test --package snug-codec --lib -- --test-threads=1 segments::
	$(CARGO) +nightly miri test --package snug-store --lib -- --test-threads=1 entry:: table:: sharded:: keyspace::
	$(CARGO) +nightly miri test --package snug-store --test locks -- --test-threads=1

.PHONY: setup
setup: # what a fresh machine lacks
	@.ci/setup

.PHONY: check
check: # format, lints, the direction of the crates' rooms, dependencies that nobody uses, fuzz targets that compile; known weaknesses of dependencies, where the database can be had
	.ci/advisories
	.ci/rooms
	.ci/dependencies
	$(CARGO) fmt --all --check
	.ci/setup $(ENGINES)
	$(ROCKSDB) $(CARGO) clippy --workspace --all-targets --features snugdb/rocksdb,snugdb/fjall --locked --profile $(TEST_PROFILE) -- --deny warnings
	set -e; for folder in $(filter-out crates/server/fuzz,$(wildcard crates/*/fuzz)); do \
	  $(CARGO) check --quiet --locked --manifest-path $$folder/Cargo.toml; done

.PHONY: unit
unit: # unit, model, property and documentation tests; those of the disk tier with all its engines
	.ci/setup $(ENGINES)
	$(CARGO) test --workspace --locked --profile $(TEST_PROFILE)
	$(ROCKSDB) $(CARGO) test --package snug-tier --all-features --locked --profile $(TEST_PROFILE)
	SHUTTLE_RANDOM_SEED=$${SHUTTLE_RANDOM_SEED:-1} $(CARGO) test --package snug-store --features shuttle --locked --profile $(TEST_PROFILE) --lib interleavings

.PHONY: proofs
proofs: setup # a running server against redis-server, clients and hostile peers
	$(CARGO) build --locked --profile $(TEST_PROFILE) --package snugdb
	tests/run --snug $(TARGET)/$(TEST_PROFILE)/snug --numprocesses $(JOBS) --dist worksteal
