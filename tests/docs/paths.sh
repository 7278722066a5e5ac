#!/bin/sh
# Prints the `files` and `identifiers` that a page names and that do not exist: sh tests/docs/paths.sh PAGE, from the
# top folder. The page names a file by its path or by the end of its path, a program of tests/ without .c, and several
# files at once with {} and *. An identifier is checked only if it is words of letters joined by _ or a period; it must
# be in balance, base, compiler, grammar, program, runtime, study or the Makefile. Names with NAME, FOLDER, COMMIT or FILE are placeholders
# and are not checked.
set -eu
list=$(mktemp)
trap 'rm -f "$list"' EXIT
find . -path ./build -prune -o -path ./.git -prune -o -print | sed 's|^\.||' >"$list"

# Expands {a,b}, one name per line.
expanded() {
    case $1 in
    *{*,*}*) for part in $(echo "$1" | sed 's/.*{\(.*\)}.*/\1/; s/,/ /g'); do echo "${1%%\{*}$part${1##*\}}"; done ;;
    *) echo "$1" ;;
    esac
}

grep -oE '`[^`]+`' "$1" | tr -d '`' | sort -u | while read -r name; do
    case $name in
    *' '* | *NAME* | *FOLDER* | *COMMIT* | *FILE* | *...*) ;;
    */* | [a-z]*.[chly] | [a-z]*.cu | [a-z]*.cuh | *.def | *.md | [a-z]*.sh | [a-z]*.test | *.awk)
        for path in $(set -f && expanded "${name%/}"); do
            pattern=$(echo "$path" | sed 's/\./\\./g; s/\*/[^\/]*/g')
            grep -qE "/$pattern(\.c)?$" "$list" || echo "$1: there is no $path"
        done
        ;;
    *_* | [A-Z]*.[a-z]*)
        for word in $(echo "$name" | grep -E '^[A-Za-z]+([_.][A-Za-z]+)+$' | tr . ' '); do
            grep -rqw "$word" balance base compiler grammar program runtime study Makefile || echo "$1: nothing is called $word"
        done
        ;;
    esac
done
