#!/bin/sh
# Prints broken links of pages: sh tests/docs/links.sh PAGES, from the top folder. Links to the web are not
# checked. Another link names a file, a heading of a file, or a heading of its own page.
set -eu
for page in "$@"; do
    grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https*:' | while read -r link; do
        file=${link%%#*}
        path=${file:+$(dirname "$page")/$file}
        path=${path:-$page}
        if [ ! -e "$path" ]; then
            echo "$page: there is no $link"
        elif [ "$link" != "$file" ]; then
            # the anchor of a heading: small letters, - for spaces, other characters removed
            sed -n 's/^##* //p' "$path" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g' | grep -qx -e "${link#*#}" || echo "$page: there is no $link"
        fi
    done
done
