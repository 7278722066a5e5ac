#!/bin/sh
# Replays a page as a reader would. Writes the files that the page shows (```dps NAME, ```csv NAME), and runs its commands
# ($ ... in ```console, continued after a \ at the end of a line) in a folder with build/ and schedules/. Prints the page with the
# real output of the commands, so that
#   sh tests/docs/replay.sh PAGE | diff PAGE -
# shows where the page is wrong; make rebase writes the output into the page. BUILD names the build folder.
set -eu
page=$(realpath "$1")
build=$(realpath "${BUILD:-build}")
top=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ln -s "$build" build
cp -r "$top/schedules" .
awk -v top="$top/" '
function run(command, line) {
    sub(/dpc advise /, "&--seconds 600 ", command) # a busy machine may need more than the usual minute
    command = "( " command " ) 2>&1"
    while ((command | getline line) > 0) {
        sub(/ in [0-9]+\.[0-9] s/, " in 0.1 s", line) # the time of a sweep depends on the machine
        sub(top "schedules/", "schedules/", line) # dpc advise names the folder of its own schedules
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
        command = substr($0, 3)
        while (sub(/\\$/, "", command) && (getline) > 0) {
            print
            command = command $0
        }
        run(command)
    }
    next
}
{
    print
    if (file != "")
        print > file
}' "$page"
