#!/bin/sh
# Follows a page as its reader would: files that the page shows (```dps NAME, ```csv NAME) are written, commands ($ ... in ```console) are
# run in a folder with build/dpc, build/dprun and schedules/. Prints the page with what the commands really print, so that
#   sh tests/docs/replay.sh PAGE | diff PAGE -
# shows where the page is wrong. BUILD names the build folder.
set -eu
page=$(realpath "$1")
build=$(realpath "${BUILD:-build}")
top=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ln -s "$build" build
cp -r "$top/schedules" .
awk '
function run(command, line) {
    command = "( " command " ) 2>&1"
    while ((command | getline line) > 0) {
        sub(/ in [0-9]+\.[0-9] s/, " in 0.1 s", line) # the time of a sweep is the machine\047s
        print line
    }
    close(command)
}
/^```/ {
    if (block != "") {
        if (file != "")
            close(file)
        block = file = ""
    } else {
        block = $1
        if ((block == "```dps" || block == "```csv") && NF > 1) {
            file = $2
            printf "" > file
        }
    }
    print
    next
}
block == "```console" {
    if (/^\$ /) {
        print
        run(substr($0, 3))
    }
    next
}
{
    print
    if (file != "")
        print > file
}' "$page"
