#!/usr/bin/env bash
# Checks the progress of a real run: at every moment the shown share of the run's time is right to a tenth.
# usage: scripts/progress.sh TIDEGATE bench all DIR [...]     exit code 1 when it is not
set -euo pipefail
limit=${LIMIT:-0.10}
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# 1 is a run that is over and has something to say, such as a cache that is never cold.
"$@" --progress json 2>"$lines" || [ $? -eq 1 ] || { grep -v '^{"progress"' "$lines" >&2; exit 2; }
# Each line has "elapsed_s":SECONDS and, in "overall", the last but one, "fraction":SHARE; the last line is the end.
awk -v limit="$limit" '
    /"overall"/ {
        match($0, /"elapsed_s":[0-9.]+/); at[++count] = substr($0, RSTART + 12, RLENGTH - 12)
        rest = substr($0, index($0, "\"overall\""))
        match(rest, /"fraction":[0-9.e-]+/); shown[count] = substr(rest, RSTART + 11, RLENGTH - 11)
    }
    END {
        if (count == 0) { print "no progress was shown"; exit 1 }
        for (line = 1; line <= count; line++) {
            off = at[line] / at[count] - shown[line]
            if (off < 0) off = -off
            if (off > worst) { worst = off; when = at[line] }
        }
        printf "%d lines in %.1f s, off by at most %.3f (at %.1f s, allowed %.2f)\n", count, at[count], worst, when, limit
        exit worst > limit
    }' "$lines"
