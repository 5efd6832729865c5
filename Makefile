# Targets for people. Each target sets up its requirements (scripts/setup.sh), or names the missing ones.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
OUT     ?= out
TARGET   = $(or $(CARGO_TARGET_DIR),target)
BINARY   = $(TARGET)/release/tidegate
DIST     = $(TARGET)/dist/tidegate
OTHERS   = tidegate-analysis tidegate-ui
UBIREADER = extract_files extract_images display_info list_files utils_info

.PHONY: all build build-all demo study test test-full bench bench-agreement firmware-check wheel wheel-check install uninstall clean setup

all: build

setup:
	@scripts/setup.sh

build: setup
	@. scripts/cargo_path.sh; $(CARGO) build --release -p cli

# Also tidegate-ui (tidegate ui) and tidegate-analysis (tidegate trace report, query, compare, apps): DataFusion takes as
# long as everything else.
build-all: setup
	@. scripts/cargo_path.sh; $(CARGO) build --release -p cli -p ui -p analysis-cli

# The paper's ladder on this machine, in under two minutes: a table and $(OUT)/demo.html.
demo: build
	@mkdir -p $(OUT)
	$(BINARY) demo $(OUT) --report $(OUT)/demo.html

# Checks of each commit: format, lints, unit, property and integration tests; TIDEGATE_SQL=1 for those in SQL as well.
test:
	@TIDEGATE_TEST=1 scripts/setup.sh
	@scripts/test.sh

# Also the long ones: external suites, long random runs, analyses of traces in SQL.
test-full:
	@TIDEGATE_TEST=1 TIDEGATE_FULL=1 scripts/setup.sh
	@TIDEGATE_FULL=1 scripts/test.sh

# The papers' study on a model of their card, as root, in under six minutes: tables and $(OUT)/study/report.html.
study: build
	@TIDEGATE_BENCH=1 TIDEGATE_GUEST=1 scripts/setup.sh
	$(BINARY) study run paper --quick -d $(OUT)/study

# Compares with the native file system and the installed peers, as root: tables, $(OUT)/bench.jsonl, .html and .md;
# exit code 1 if a required ratio is not met. ROUNDS, SIZE, WORKLOADS, TARGETS: see scripts/bench.sh.
bench: build
	@TIDEGATE_BENCH=1 scripts/setup.sh
	@OUT=$(OUT) scripts/bench.sh $(BINARY)

# Compares the bench with fio, plain C loops, SQLite in C and the original Mobibench, as root, in 25 minutes:
# $(OUT)/agreement.jsonl and .md; QUICK=yes takes five minutes. See scripts/bench-agreement.sh.
bench-agreement: build
	@TIDEGATE_AGREEMENT=1 scripts/setup.sh
	@. scripts/cargo_path.sh; $(CARGO) build --release -p judge
	@OUT=$(OUT) scripts/bench-agreement.sh $(if $(QUICK),--quick) $(if $(RESUME),--resume) $(BINARY) $(TARGET)/release/judge

# Unpacks dumps made by mtd-utils, with everything around and inside of them that real ones have, and compares the tools of
# ubi_reader (from its registry, in a virtual environment) with the links of the same names; after `make wheel` also unblob
# without and with the wheel. See scripts/judges/firmware.sh.
firmware-check: build
	@TIDEGATE_TEST=1 scripts/setup.sh
	@scripts/judges/firmware.sh $(BINARY) $(wildcard $(TARGET)/wheels/tidegate-*manylinux*$(shell uname -m).whl)

# The Python wheel with the command in it, for x86_64 and aarch64, with tools from Python's registry: $(TARGET)/wheels.
wheel: setup
	@scripts/wheel.sh $(MACHINES)

# Tests of the wheels: the package, the examples of docs/guide/python.md, types, size; that of aarch64 under qemu-user.
wheel-check:
	@TIDEGATE_TEST=1 scripts/setup.sh
	@scripts/judges/wheel.sh $(TARGET)/wheels

# The core is built with the profile `dist`: smaller and optimised as a whole; the two others as by `make build-all`.
install: setup
	@. scripts/cargo_path.sh; $(CARGO) build --profile dist -p cli && $(CARGO) build --release -p ui -p analysis-cli
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)/sbin
	install -s -m 0755 $(DIST) $(OTHERS:%=$(TARGET)/release/%) $(DESTDIR)$(PREFIX)/bin
	$(DIST) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(DIST) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tidegate
	$(DIST) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_tidegate
	$(DIST) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/tidegate.fish
	# Under this name it takes the options of the original Mobibench.
	ln -sf tidegate $(DESTDIR)$(PREFIX)/bin/mobibench
	# Under these, those of the tools of ubi_reader, which unblob, binwalk, EMBA and FACT call.
	for tool in $(UBIREADER); do ln -sf tidegate $(DESTDIR)$(PREFIX)/bin/ubireader_$$tool; done
	# mount(8) looks for its helper here, so that `mount -t fuse.tidegate` and /etc/fstab work.
	ln -sf $(PREFIX)/bin/tidegate $(DESTDIR)/sbin/mount.fuse.tidegate

uninstall:
	rm -f $(DESTDIR)/sbin/mount.fuse.tidegate $(DESTDIR)$(PREFIX)/bin/tidegate $(OTHERS:%=$(DESTDIR)$(PREFIX)/bin/%) \
		$(DESTDIR)$(PREFIX)/bin/mobibench $(UBIREADER:%=$(DESTDIR)$(PREFIX)/bin/ubireader_%) \
		$(DESTDIR)$(PREFIX)/share/man/man1/tidegate.1 $(DESTDIR)$(PREFIX)/share/man/man1/tidegate-*.1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/tidegate \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_tidegate \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/tidegate.fish

clean:
	@. scripts/cargo_path.sh; $(CARGO) clean
	rm -rf $(OUT)
