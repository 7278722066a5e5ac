#!/bin/sh
# Prints the links of pages that lead nowhere: sh tests/docs/links.sh PAGES, from the top folder. A link within the project names a
# file and maybe a heading of it.
set -eu
for page in "$@"; do
    grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https*:' | while read -r link; do
        file=${link%%#*}
        path=${file:+$(dirname "$page")/$file}
        path=${path:-$page}
        if [ ! -e "$path" ]; then
            echo "$page: there is no $link"
        elif [ "$link" != "$file" ]; then
            # a heading's anchor: small letters, - for spaces, nothing for all else
            sed -n 's/^##* //p' "$path" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g' | grep -qx -e "${link#*#}" || echo "$page: there is no $link"
        fi
    done
done
