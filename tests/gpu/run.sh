# Everything that takes a GPU, on a machine that has one and perhaps nothing else: sh run.sh [--dry-run] [FOLDER [PART...]]
#
# It lies in a folder of its own with the programs and libraries that it needs (`make gpu-kit` fills build/gpu and packs it).
# Parts, all unless some are named: start operations training nccl sanitizer figures. Checks come first, then figures; each is a
# line of the table at the end and of FOLDER/<date>.csv (default: results, here). What fails or hangs is said, and the rest goes
# on. --dry-run does what can be done on the processor alone: that the script itself is right.
here=$(cd "$(dirname "$0")" && pwd)
fp32=cuda-fp32 bf16=cuda dry=
[ "$1" = --dry-run ] && fp32=cpu bf16=cpu dry="dry run" && shift
results=${1:-$here/results}
[ $# -gt 0 ] && shift
parts=${*:-start operations training nccl sanitizer figures}
mkdir -p "$results" && results=$(cd "$results" && pwd)
cd "$here" || exit 1
# Libraries of the machine's own come after those that are here, but for the compiler's, which it mostly has.
cuda=${CUDA_HOME:-/usr/local/cuda}
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$cuda/lib64" XDG_CACHE_HOME="$here/cache"
./dprun --help > /dev/null 2>&1 || LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$here/lib/base"
./dprun --help > /dev/null || { echo "dprun does not start here: the kit was made for another Linux ($(uname -m), the C library)"; exit 1; }
log=$results/$(date +%Y-%m-%d).log
table=$results/$(date +%Y-%m-%d).csv
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
small="--set hidden=64 --set heads=2 --set sequence=32 --set microbatch_size=2"
failed=0
[ -s "$table" ] || echo "date,gpu,driver,name,value,unit,command" > "$table"

note() { # name value unit command
    echo "$(date +%Y-%m-%dT%H:%M:%S),$gpu,$driver,$1,$2,$3,\"$4\"" >> "$table"
    printf '%-48s %s %s\n' "$1" "$2" "$3"
}

fail() { # name command: of a part whose figures are missing
    note "$1" FAIL - "$2"
    failed=$((failed + 1))
}

check() { # name command...: passes when the command does
    name=$1
    shift
    echo "== $name: $*" >> "$log"
    if timeout 300 "$@" >> "$log" 2>&1; then
        note "$name" pass - "$*"
    else
        fail "$name" "$*"
    fi
}

losses() { # FILE options...: the losses of a run, one a line
    file=$1
    shift
    echo "== dprun $*" >> "$log"
    timeout 300 ./dprun --json "$@" 2>> "$log" | sed -n 's/.*"loss":\([^,]*\),.*/\1/p' > "$file"
}

compare() { # name bound command: the losses in a.txt are those in b.txt
    if paste a.txt b.txt | awk -v bound="$2" 'NF != 2 || !($1 > 0) { bad = 1 }
            { off = ($1 - $2) / $2; off = off < 0 ? -off : off; if (off > worst) worst = off }
            END { printf "%.2e", worst; exit bad || NR == 0 || worst > bound }' > worst.txt; then
        note "$1" "$(cat worst.txt)" off "$3"
    else
        note "$1" "FAIL:$(cat worst.txt)" off "$3"
        failed=$((failed + 1))
    fi
}

start() {
    ./dprun --device $bf16 --steps 1 $small 1f1b.bin > start.txt 2>&1 && { note start pass - "dprun --device $bf16"; return; }
    cat start.txt
    [ -n "$gpu" ] || { echo "this machine runs nothing on a GPU"; exit 1; }
    fail start "dprun --device $bf16"
}

operations() {
    check operations.fp32 ./operations $fp32 1e-5
    check operations.bf16 ./operations $bf16 1e-2
}

training() {
    for program in *.bin; do
        name=${program%.bin}
        losses b.txt --device cpu --reference --steps 4 $small "$program"
        losses a.txt --device $fp32 --steps 4 $small "$program"
        compare "training.fp32.$name" 1e-5 "dprun --device $fp32 --steps 4 $small $program"
        losses a.txt --device $bf16 --steps 4 $small "$program"
        compare "training.bf16.$name" 2e-2 "dprun --device $bf16 --steps 4 $small $program"
    done
    losses b.txt --device $fp32 --steps 4 --in-turn $small dualpipe.bin
    losses a.txt --device $fp32 --steps 4 $small dualpipe.bin
    compare fused.fp32.dualpipe 0 "dprun --device $fp32 --steps 4 $small dualpipe.bin, and with --in-turn"
    losses b.txt --device cpu --reference --steps 40 dualpipe.bin
    losses a.txt --device $bf16 --steps 40 dualpipe.bin
    compare curve.bf16.dualpipe 2e-2 "dprun --device $bf16 --steps 40 dualpipe.bin"
}

nccl() {
    if [ -n "$dry" ]; then
        note nccl.one_rank skipped "$dry" -
    elif ldconfig -p 2>/dev/null | grep -q libnccl.so.2 || [ -e lib/libnccl.so.2 ] || [ -e "$cuda/lib64/libnccl.so.2" ]; then
        check nccl.one_rank ./dprun --device cuda --transport nccl --reference --steps 2 $small 1f1b.bin
    else
        note nccl.one_rank skipped "NCCL is not installed" -
    fi
}

sanitizer() {
    sanitizer=$(command -v compute-sanitizer || ls "$cuda/bin/compute-sanitizer" 2>/dev/null)
    if [ -z "$sanitizer" ] || [ -n "$dry" ]; then
        note compute-sanitizer skipped "${dry:-not installed}" -
        return
    fi
    for tool in memcheck racecheck; do
        check "$tool.operations" "$sanitizer" --tool $tool --error-exitcode 9 ./operations cuda 1e-2 small
    done
    check memcheck.training "$sanitizer" --tool memcheck --error-exitcode 9 ./dprun --device cuda --steps 1 $small dualpipe.bin
}

figures() {
    for program in speed overlap; do
        timeout 300 ./$program > figures.txt 2>> "$log" || [ -n "$dry" ] || fail $program ./$program
        while read -r name value unit; do note "$name" "$value" "$unit" ./$program; done < figures.txt
    done
    large="--set hidden=2048 --set heads=16 --set sequence=2048 --set microbatch_size=1"
    [ -z "$dry" ] || large=$small
    for program in 1f1b.bin dualpipe.bin "--in-turn dualpipe.bin"; do
        name=step.$(echo "$program" | sed 's/--\([^ ]*\) \(.*\)/\2.\1/; s/.bin//')
        timeout 300 ./dprun --device $bf16 --json --steps 6 $large $program 2>> "$log" | tail -1 > step.txt
        [ -s step.txt ] || fail "$name" "dprun --device $bf16 --steps 6 $large $program"
        for figure in step_ms tokens_per_s bubble_rate; do
            value=$(sed -n "s/.*\"$figure\":\([^,}]*\).*/\1/p" step.txt)
            [ -z "$value" ] || note "$name.$figure" "$value" - "dprun --device $bf16 --steps 6 $large $program"
        done
    done
}

for part in $parts; do
    case $part in
    start | operations | training | nccl | sanitizer | figures) $part ;;
    *) echo "there is no part $part" && exit 2 ;;
    esac
done

echo "$gpu, driver $driver: $failed failed; the table is $table, what the programs said is $log"
[ "$failed" = 0 ]
