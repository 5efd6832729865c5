# Sourced: puts cargo into PATH if rustup installed it after the shell was started.
if ! command -v cargo >/dev/null 2>&1 && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
fi
# Variables given to make, such as those of `make install DESTDIR=DIR PREFIX=DIR`, would reach the make that builds libbpf, whose
# library then went there and was not found.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES DESTDIR PREFIX
