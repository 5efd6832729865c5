# Puts the stock fsck.ubifs into the lab's cache folder, for lab/setup.sh. mtd-utils has it since 2.3: where the
# distribution's package is older (Debian 12, Ubuntu 24.04), the source package of Debian 13 is fetched and verified
# by apt in a separate folder and built, so that the machine's package lists stay unchanged.

# Debian's archive: the one configured on this machine, or TIDEGATE_DEBIAN_ARCHIVE.
debian_archive() {
    [ "${TIDEGATE_DEBIAN_ARCHIVE:-}" ] && printf '%s\n' "$TIDEGATE_DEBIAN_ARCHIVE" && return
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        sed -n 's/^Debian Debian //p' | sort -u | head -n 1
}

# An apt configured with only Debian 13's sources, in $1.
debian_13() {
    local folder=$1
    shift
    apt-get -qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

build_fsck() {
    local folder=$lab/fsck build=$lab/fsck.part archive keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$folder"
    gcc -O2 -Wall -shared -fPIC -o "$folder/fakeubi.so" lab/fsck/fakeubi.c -ldl ||
        { say "lab/fsck/fakeubi.c does not build: fsck.ubifs is left out"; return; }
    [ -e "$folder/fsck.ubifs" ] && return
    if command -v fsck.ubifs >/dev/null 2>&1; then
        ln -s "$(command -v fsck.ubifs)" "$folder/fsck.ubifs"
        return
    fi
    install_packages autoconf automake libtool pkg-config make gcc dpkg-dev libacl1-dev liblzo2-dev libzstd-dev \
        zlib1g-dev uuid-dev libssl-dev libselinux1-dev
    [ -e "$keyring" ] || install_packages debian-archive-keyring
    archive=$(debian_archive)
    if [ -z "$archive" ] || [ ! -e "$keyring" ]; then
        say "fsck.ubifs is left out: set TIDEGATE_DEBIAN_ARCHIVE to a Debian archive, and install debian-archive-keyring"
        return
    fi
    say "building fsck.ubifs of Debian 13"
    rm -rf "$build"
    mkdir -p "$build/lists/partial" "$build/cache/archives/partial"
    printf 'deb-src [signed-by=%s] %s trixie main\n' "$keyring" "$archive" >"$build/sources.list"
    if (
        cd "$build"
        debian_13 . update
        debian_13 . source --download-only mtd-utils
        dpkg-source -x mtd-utils*.dsc source
        cd source
        autoreconf -fi
        ./configure --without-tests --without-lsmtd --without-jffs
        make -j2 fsck.ubifs
    ) >"$lab/fsck.log" 2>&1; then
        strip -o "$folder/fsck.ubifs" "$build/source/fsck.ubifs"
        say "fsck.ubifs $("$folder/fsck.ubifs" -V 2>&1 | head -n 1) in $folder"
    else
        say "fsck.ubifs can't be built (log: $lab/fsck.log): what needs it is left out"
    fi
    rm -rf "$build"
}
