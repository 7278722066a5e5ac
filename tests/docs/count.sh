# Prints the lines of the files under version control by folder, and of these the comments and the empty ones; then of the
# product, of the tests and of the makefiles. `make count` runs it in the top folder.
git ls-files base program grammar compiler study library balance runtime python web tests Makefile | grep -v '^tests/gpu/results/' | xargs awk '
FNR == 1 {
    folder = FILENAME
    if (folder ~ /^Makefile|\.mk$/) folder = "makefiles"
    else if (folder ~ /^tests/) folder = "tests"
    else sub(/\/[^\/]*$/, "", folder)
    c = FILENAME ~ /\.(c|h|y|l|cu|cuh|cpp|def)$/
    inside = 0
}
{
    quotes = gsub(/"""/, "&")
    lines[folder]++
    if (inside || (c ? /^[ \t]*\/[*\/]/ : /^[ \t]*(#|""")/)) comments[folder]++
    else if (/^[ \t]*$/) empty[folder]++
    if (c && /\/\*/) inside = 1
    if (c && /\*\//) inside = 0
    if (!c && quotes % 2) inside = !inside
}
END {
    form = "%-28s %7d %9d %7d\n"
    printf "%-28s %7s %9s %7s\n", "folder", "lines", "comments", "empty"
    for (folder in lines)
        if (folder !~ /tests|makefiles/) {
            printf form, folder, lines[folder], comments[folder], empty[folder] | "sort"
            a += lines[folder]; b += comments[folder]; e += empty[folder]
        }
    close("sort")
    printf form, "product", a, b, e
    printf form, "tests", lines["tests"], comments["tests"], empty["tests"]
    printf form, "makefiles", lines["makefiles"], comments["makefiles"], empty["makefiles"]
}'
