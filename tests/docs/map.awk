# Compares the map of docs/architecture.md with the #include lines: awk -f tests/docs/map.awk docs/architecture.md FILES...
#
# A row's third column says what the files of its folder may include besides the folder itself: `folders` and `files`, with {} as in a
# shell, relative to the top or to the row's parent folder; "nothing", or "anything". A file belongs to the row whose folder is nearest above
# it. Prints includes that the map forbids, allowed ones that nobody uses, and cycles in the map.

function expand(text, prefix, rest, parts, count, i)
{
    if (!match(text, /\{[^}]*\}/))
        return text
    prefix = substr(text, 1, RSTART - 1)
    rest = substr(text, RSTART + RLENGTH)
    count = split(substr(text, RSTART + 1, RLENGTH - 2), parts, ",")
    text = ""
    for (i = 1; i <= count; i++)
        text = text " " prefix parts[i] rest
    return text
}

# The folder whose row of the map a file belongs to: the nearest one above the file.
function home(path)
{
    while (sub(/\/[^\/]*$/, "", path))
        if (path in rows)
            return path
    return ""
}

function within(path, place) { return path == place || index(path, place "/") == 1 }

# A name of the third column, as a path from the top.
function place_of(name, folder, beside)
{
    beside = folder
    sub(/[^\/]*$/, "", beside)
    return (beside name in known) ? beside name : name
}

FNR == 1 { file++ }

file == 1 && /^\| `[a-z\/]*\/` \|/ {
    split($0, column, "|")
    folder = column[2]
    gsub(/[ `]|\/ *`? *$/, "", folder)
    rows[folder] = column[4]
}

file > 1 && FNR == 1 {
    files[FILENAME]
    known[FILENAME]
    for (path = FILENAME; sub(/\/[^\/]*$/, "", path);)
        known[path]
}

file > 1 && /^[ \t]*#[ \t]*include "[^"]*\// {
    split($0, quoted, "\"")
    includes[FILENAME, quoted[2]]
}

END {
    for (folder in rows) {
        if (!(folder in known))
            print "no folder " folder
        while (match(rows[folder], /`[^`]*`/)) {
            name = substr(rows[folder], RSTART + 1, RLENGTH - 2)
            rows[folder] = substr(rows[folder], RSTART + RLENGTH)
            count = split(expand(name), names, " ")
            for (i = 1; i <= count; i++) {
                place = place_of(names[i], folder)
                if (!(place in known))
                    print folder "/: there is no " names[i]
                allowed[folder, place]
                for (other in rows)
                    if (other != folder && (within(other, place) || home(place "/.") == other))
                        reaches[folder, other] = 1
            }
        }
    }
    for (path in files)
        if (home(path) == "")
            print path " is in no folder of the map"
    for (pair in includes) {
        split(pair, ends, SUBSEP)
        from = home(ends[1])
        if (rows[from] ~ /anything/ || home(ends[2]) == from)
            continue
        good = 0
        for (rule in allowed) {
            split(rule, parts, SUBSEP)
            if (parts[1] == from && within(ends[2], parts[2])) {
                good = 1
                used[rule]
            }
        }
        if (!good)
            print ends[1] " includes " ends[2] ", which the map does not allow " from "/"
    }
    for (rule in allowed)
        if (!(rule in used)) {
            split(rule, parts, SUBSEP)
            print parts[1] "/ includes nothing of " parts[2] ", which the map allows"
        }
    for (middle in rows)
        for (from in rows)
            for (to in rows)
                if (reaches[from, middle] && reaches[middle, to])
                    reaches[from, to] = 1
    for (folder in rows)
        if (reaches[folder, folder])
            print folder "/ is in a circle of the map"
}
