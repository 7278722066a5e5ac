#!/bin/sh
# usage: make equal BEFORE=COMMIT [SCHEDULES="dualpipe zb-v"]
#
# Builds COMMIT and the current sources, trains with every schedule in both, and compares to the bit: the losses of all
# microbatches, gradient norms, the held-out loss and the saved weights. The runs of a schedule are those of `runs` below.
# A schedule that COMMIT lacks is reported and skipped. The whole comparison takes a quarter of an hour on 2 idle cores.
#
# $BUILD/equal/COMMIT keeps the build of COMMIT and its results, so a second comparison only trains the current sources.
set -eu
[ $# = 1 ] || { sed -n '2s/# //p' "$0" >&2; exit 2; }
top=$(realpath "$(dirname "$0")/../..")
build=$(realpath "${BUILD:-build}")
commit=$(git -C "$top" rev-parse --verify --short=12 "$1^{commit}")
before=$build/equal/$commit
work=$build/equal/work.$$
mkdir -p "$before" "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
as_root=$([ "$(id -u)" = 0 ] && echo --allow-run-as-root || :)

# Prints the runs of one schedule, one a line: name, how to start it (dprun, mpirun or mock), options.
runs()
{
    for model in gpt mlp; do
        for turn in "" --in-turn; do
            echo "$model-local$turn dprun --model $model $turn"
            ! command -v mpirun >/dev/null || echo "$model-mpi$turn mpirun --model $model $turn"
            echo "$model-mock-bf16$turn mock --model $model $turn --device cuda"
            echo "$model-mock-fp32$turn mock --model $model $turn --device cuda-fp32"
        done
        echo "$model-reference dprun --model $model --reference"
        echo "$model-forward dprun --model $model --forward-only"
    done
}

# Runs $work/program once with the programs in folder $1; $2 says how to start them. Prints the numbers of each step,
# then the checksum of the file that the run has written. If the run fails, prints its exit status and output instead.
train()
{
    programs=$1 how=$2
    shift 2
    file=--save
    case "$*" in *--forward-only*) file=--outputs ;; *"--model gpt"*) set -- "$@" --held-out 512 ;; esac
    set -- "$@" --json --steps 3 --set hidden=32 --set heads=2 --set sequence=8 --set microbatch_size=2 \
        "$file" "$work/file" "$work/program"
    rm -f "$work/file"
    case $how in
    dprun) "$programs/dprun" "$@" ;;
    mock) "$programs/tests/cuda/fake/dprun" "$@" ;;
    mpirun) mpirun $as_root --oversubscribe -n 4 "$programs/dprun" "$@" ;;
    esac >"$work/steps" 2>"$work/said" </dev/null || { echo "exit status $?"; cat "$work/said"; return; }
    grep -oE '"(step|loss|losses|gradient_norm|held_out_loss|held_out_tokens)":(\[[^]]*\]|[^],}]*)' "$work/steps"
    cksum <"$work/file"
}

# Trains with each schedule of the sources in $1 (SCHEDULES may select some), by the programs in folder $2. Makes in
# folder $3 one folder per schedule, with one file per run. A schedule that has its folder already is skipped.
train_all()
{
    for schedule in "$1"/schedules/*.dps; do
        name=$(basename "$schedule" .dps)
        case " ${SCHEDULES:-$name} " in *" $name "*) ;; *) continue ;; esac
        [ ! -e "$3/$name" ] || continue
        rm -rf "$work/results" && mkdir "$work/results"
        "$2/dpc" --ranks 4 --microbatches 8 "$schedule" -o "$work/program" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
        runs | while read -r run how options; do
            train "$2" "$how" $options >"$work/results/$run"
        done
        mkdir -p "$3" && mv "$work/results" "$3/$name"
    done
}

results=$before/results-$(cksum <"$0" | cut -d ' ' -f 1)
if [ ! -e "$before/sources" ]; then
    mkdir -p "$before/unpacked"
    git -C "$top" archive "$commit" | tar -x -C "$before/unpacked"
    mv "$before/unpacked" "$before/sources"
fi
mock=build/tests/cuda/fake/dprun
${MAKE:-make} --no-print-directory -s -C "$before/sources" BUILD=build all $mock
train_all "$before/sources" "$before/sources/build" "$results"
train_all "$top" "$build" "$work/after"

count=0 differ=0
for schedule in "$work"/after/*; do
    name=$(basename "$schedule")
    [ -e "$results/$name" ] || { echo "$name: not in $1"; continue; }
    for run in "$schedule"/*; do
        count=$((count + 1))
        was=$results/$name/$(basename "$run")
        if grep '^exit status' "$run" "$was" >/dev/null; then
            echo "$name $(basename "$run"): the run fails" && head -3 "$was" "$run"
        elif ! cmp -s "$was" "$run"; then
            echo "$name $(basename "$run"): $1 (<) and the present sources (>) differ, first in" && diff "$was" "$run" | head -4
        else
            continue
        fi
        differ=$((differ + 1))
    done
done
[ $count -gt 0 ] || { echo "nothing to compare" >&2; exit 1; }
echo "$count runs of $(ls "$work/after" | wc -l) schedules, $differ not equal to those of $1"
[ $differ = 0 ]
