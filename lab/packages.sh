# Packages by apt, for lab/setup.sh: installing tools, and the names of the distribution's kernel packages.

as_root=()
may_install=yes
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        may_install=
    fi
fi
command -v apt-get >/dev/null 2>&1 || may_install=

apt_install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# Installs the available packages, and names the rest.
install_packages() {
    if [ -z "$may_install" ]; then
        say "missing, and neither root nor sudo without a password to install them: $*"
        return
    fi
    say "installing $*"
    apt_install "$@" && return
    "${as_root[@]}" apt-get update -qq >/dev/null 2>&1 || true
    local package
    apt_install "$@" || for package in "$@"; do
        apt_install "$package" || say "could not install $package: its users are left out"
    done
}

# The version (as shown by uname -r) of the distribution's kernel package.
newest_kernel() {
    local meta found
    command -v apt-cache >/dev/null 2>&1 || return 1
    for meta in linux-image-amd64 linux-image-generic; do
        found=$(apt-cache depends "$meta" 2>/dev/null |
            sed -n 's/^ *Depends: linux-image-\([0-9][^ ]*\)$/\1/p' | head -n 1)
        [ "$found" ] && printf '%s\n' "$found" && return
    done
    # Package lists may be absent, as in a fresh container.
    [ "${updated:-}" ] && return 1
    "${as_root[@]}" apt-get update -qq >/dev/null 2>&1 || true
    updated=yes newest_kernel
}

# Ubuntu has the modules in a separate package, and those of flash file systems in another one.
kernel_packages() {
    local package
    for package in "linux-image-$1" "linux-modules-$1" "linux-modules-extra-$1"; do
        apt-cache show "$package" >/dev/null 2>&1 && printf '%s\n' "$package"
    done
    return 0
}

# The headers of one kernel: those for this machine, those for all, and the tools of its build.
header_packages() {
    printf 'linux-headers-%s\n' "$1"
    apt-cache depends "linux-headers-$1" 2>/dev/null | sed -n 's/^ *Depends: \(linux-\(headers\|kbuild\)-[^ ]*\)$/\1/p'
}
