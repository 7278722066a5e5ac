#!/bin/sh
# Prints where the manual pages differ from the programs: sh tests/docs/manual.sh FOLDER [SOURCES], with dpc and dprun
# on the PATH. Options are compared with --help, which dpc and dprun derive from their tables of options, and with those
# that a command of dpc names when it refuses another option. With SOURCES, the costs in dps(5) and the kinds of
# --emit in dpc(1) are compared with their tables in the sources.
set -eu
pages=$1
top=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The options that a text names, one per line, without those of other programs.
options_in() {
    sed -E 's/(dprun|mpirun) +-+[a-z-]+//g' | grep -oE '(^|[^a-zA-Z0-9-])(--[a-z][a-z-]*|-[a-zA-Z]\b)' | grep -oE -e '-+[a-zA-Z-]+' | sort -u
}

# The options that a page explains (.It Fl), or that one of its sections (.Sh) names (.Fl).
options_of() {
    awk -v wanted="${2:-}" '
        /^\.Sh / { section = substr($0, 5) }
        wanted == "" ? /^\.It/ : section == wanted {
            for (i = 1; i < NF; i++)
                if ($i ~ /^\.?Fl$/)
                    print "-" $(i + 1)
        }' "$pages/$1" | sort -u
}

# compare PAGE PROGRAM: prints how the two lists of options in $work differ.
compare() {
    diff "$work/page" "$work/program" | sed -n "s|^< \(.*\)|$1 has \1, $2 does not|p; s|^> \(.*\)|$1 has no \1, $2 does|p"
}

{ dpc --help; dpc balance --help; dpc fmt 2>&1 || :; } | options_in >"$work/program"
options_of dpc.1 >"$work/page"
compare dpc.1 "dpc --help"
for command in compare advise diff calibrate fit check; do
    dpc $command --explain x 2>&1 | sed 's/takes no --explain//' | options_in >"$work/program"
    options_of dpc.1 "$(echo $command | tr a-z A-Z)" >"$work/page"
    compare dpc.1 "dpc $command"
done
dpc balance --help | options_in >"$work/program"
options_of dpc.1 BALANCE >"$work/page"
compare dpc.1 "dpc balance --help"
dprun --help | options_in >"$work/program"
options_of dprun.1 >"$work/page"
compare dprun.1 "dprun --help"

[ -n "$top" ] || exit 0
for name in $(sed -n 's/^ *{"\([a-zA-Z_]*\)", INDEX_.*/\1/p' "$top/program/times/costs.c"); do
    sed -n '/^\.Ss Cost files/,/^\.S/{/^\.Cm\|^\.It Cm/p}' "$pages/dps.5" | grep -qw "$name" || echo "dps.5 has no cost $name"
done
for name in $(sed -n 's/^EMIT([A-Z_]*, "\([a-z]*\)".*/\1/p' "$top/compiler/output/kinds.def"); do
    grep '^\.It Cm' "$pages/dpc.1" | grep -qw "$name" || echo "dpc.1 has no --emit=$name"
done
