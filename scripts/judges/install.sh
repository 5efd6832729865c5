# Versions and location of the test suites in Rust, for the scripts beside this one. `. scripts/judges/install.sh` from the
# repository's root, after cargo_path.sh.

pjdfstest_version=0.2.2
fsx_version=0.3.2
judges=$(realpath -m target)/judges

# install_judge NAME VERSION: installs it into $judges/bin.
install_judge() {
    local stamp="$judges/$1-$2.installed"
    [ -e "$stamp" ] && [ -x "$judges/bin/$1" ] && return
    echo "building $1 $2"
    # Their libraries, most of them for options and files of settings, take half of the time at level 0. So does pjdfstest, whose
    # own time goes to system calls; fsx compares what it reads.
    local level=3
    [ "$1" != pjdfstest ] || level=0
    CARGO_TARGET_DIR="$judges/build" cargo install --quiet --locked --root "$judges" --version "=$2" \
        --config 'profile.release.package."*".opt-level=0' --config "profile.release.opt-level=$level" "$1"
    touch "$stamp"
}
