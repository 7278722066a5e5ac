# Runs everything that needs a GPU, on a machine with one and perhaps nothing else:
#
#     sh run.sh [--dry-run] [--seconds N] [FOLDER [PART...]]
#
# It is in a folder with the programs and libraries that it needs (`make gpu-kit` fills build/gpu and packs it).
# Parts, all unless some are named: first operations training nccl sanitizer figures. `first` is for code that never ran: the
# smallest form of everything, in a minute or two, each run separately, most with a limit of FIRST_SECONDS (20). Then come checks,
# then figures.
# Each gives a line, printed and written to FOLDER/<date>.csv (default: results, here) at once. A failure or hang is reported,
# and the rest continues. --seconds N: after this time nothing starts, and running programs are ended. --dry-run tests the script:
# it runs what needs only a CPU.
here=$(cd "$(dirname "$0")" && pwd)
fp32=cuda-fp32 bf16=cuda dry='' end=''
while :; do
    case $1 in
    --dry-run) fp32=cpu bf16=cpu dry="dry run" ;;
    --seconds) end=$(($(date +%s) + $2)) && shift ;;
    *) break ;;
    esac
    shift
done
results=${1:-$here/results}
[ $# -gt 0 ] && shift
all="first operations training nccl sanitizer figures"
parts=${*:-$all}
for part in $parts; do
    case " $all " in *" $part "*) ;; *) echo "there is no part $part: $all" && exit 2 ;; esac
done
mkdir -p "$results" && results=$(cd "$results" && pwd)
cd "$here" || exit 1
# The libraries in the kit's folder come before those of the machine and of its PyTorch. The compiler (NVRTC) is mostly
# the machine's.
cuda=${CUDA_HOME:-/usr/local/cuda}
torch=$(python3 -c 'import glob, nvidia; print(":".join(glob.glob(list(nvidia.__path__)[0] + "/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$cuda/lib64${torch:+:$torch}" XDG_CACHE_HOME="$here/cache"
./dprun --help > /dev/null 2>&1 || LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$here/lib/base"
./dprun --help > /dev/null || { echo "dprun does not start here: the kit was made for another Linux ($(uname -m), the C library)"; exit 1; }
log=$results/$(date +%Y-%m-%d).log
table=$results/$(date +%Y-%m-%d).csv
gpu=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
driver=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
small="--set hidden=64 --set heads=2 --set sequence=32 --set microbatch_size=2"
failed=0 hangs=0 bad=''
[ -s "$table" ] || echo "date,gpu,driver,name,value,unit,command" > "$table"

note() { # name value unit command
    echo "$(date +%Y-%m-%dT%H:%M:%S),$gpu,$driver,$1,$2,$3,\"$4\"" >> "$table"
    printf '%-40s %s %s\n' "$1" "$2" "$3"
}

fail() { # name value unit command
    note "$@"
    failed=$((failed + 1))
    bad="$bad
    $1: $2"
}

plain() { # for a field of the table
    tr '",' "' " | sed 's| *$||' | cut -c 1-300
}

# In the part `first`, before a hanging program is ended, the debugger (if installed) prints which kernel runs and where its warps
# are.
watched='"$@" &
program=$!
trap "timeout 25 cuda-gdb -p $program -batch -ex \"info cuda kernels\" -ex \"info cuda blocks\" -ex \"info cuda warps\" > look.txt 2>&1
    kill -KILL $program; exit" TERM
wait $program'
debugger=

within() { # seconds command...: output to out.txt and err.txt; what became of it in $status and $verdict
    local seconds=$1
    shift
    echo "== $*" >> "$log"
    if [ -n "$end" ] && [ $((end - $(date +%s))) -lt "$seconds" ]; then
        seconds=$((end - $(date +%s)))
    fi
    if [ "$seconds" -gt 0 ]; then
        : > look.txt
        if [ -n "$debugger" ]; then
            timeout --foreground -k 40 "$seconds" sh -c "$watched" sh "$@" > out.txt 2> err.txt < /dev/null
        else
            timeout -k 3 "$seconds" "$@" > out.txt 2> err.txt < /dev/null
        fi
        status=$?
    else
        status=125
        : > out.txt > err.txt > look.txt
    fi
    cat out.txt err.txt look.txt >> "$log"
    case $status in
    0) verdict=pass ;;
    124 | 137) verdict="HANG: $({ cat err.txt out.txt | tail -1; grep '^\*' look.txt; } | tr '\n' ' ' | plain)" hangs=$((hangs + 1)) ;;
    125) verdict="no time" ;;
    *) verdict="FAIL: $(cat err.txt out.txt | grep -v -e '^\[' -e '^$' | head -1 | plain) ($status)" ;;
    esac
}

check() { # name seconds command...: passes if the command exits with 0
    local name=$1 began
    began=$(date +%s)
    shift
    within "$@"
    shift
    if [ $status = 0 ]; then
        note "$name" pass "$(($(date +%s) - began)) s" "$*"
    else
        fail "$name" "$verdict" "$(($(date +%s) - began)) s" "$*"
    fi
}

losses() { # FILE seconds options...: the losses of a run, one a line
    local file=$1 most=$2
    shift 2
    within "$most" ./dprun --json --deadline 15 "$@"
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out.txt > "$file"
}

reference() { # NAME options...: the losses of the CPU, in b.txt; computed only if reference/NAME is missing
    local name=$1
    shift
    mkdir -p reference
    [ -s "reference/$name" ] || losses "reference/$name" 120 --device cpu --reference "$@"
    cp "reference/$name" b.txt
}

compare() { # name bound seconds options...: a run has the losses that are in b.txt, each off by at most this share
    local name=$1 bound=$2
    shift 2
    losses a.txt "$@"
    shift
    if [ $status != 0 ]; then
        fail "$name" "$verdict" off "dprun $*"
    elif paste a.txt b.txt | awk -v bound="$bound" 'NF != 2 || !($1 > 0) { bad = 1 }
            { off = ($1 - $2) / $2; off = off < 0 ? -off : off; if (off > worst) worst = off }
            END { printf "%.2e", worst; exit bad || NR == 0 || worst > bound }' > worst.txt; then
        note "$name" "$(cat worst.txt)" off "dprun $*"
    else
        fail "$name" "FAIL: $(cat worst.txt)" off "dprun $*"
    fi
}

nccl_of() { # name options...: one rank that sends to itself
    local name=$1
    shift
    if [ -n "$dry" ]; then
        note "$name" skipped "$dry" -
        return
    fi
    within 30 ./dprun --device cuda --transport nccl --deadline 15 --reference $small "$@" 1f1b.bin
    case $verdict in
    pass) note "$name" pass - "dprun --transport nccl $*" ;;
    *"NCCL is not installed"*) note "$name" skipped "NCCL is not installed" - ;;
    *) fail "$name" "$verdict" - "dprun --transport nccl $*" ;;
    esac
}

first() {
    local most name type bound device
    most=${FIRST_SECONDS:-20} debugger=$(command -v cuda-gdb)
    check first.open 120 ./operations $bf16 1e-2 small none # it may have to compile its kernels first
    if [ $status != 0 ] && [ -z "$gpu$dry" ]; then
        echo "this machine runs nothing on a GPU"
        exit 1
    fi
    export CUDA_LAUNCH_BLOCKING=1 # an error comes with the kernel that makes it
    for name in sums linear norm gelu attention embedding losses adamw; do
        check first.fp32.$name "$most" ./operations $fp32 1e-5 small $name
        check first.bf16.$name "$most" ./operations $bf16 1e-2 small $name
    done
    for name in linear norm gelu attention embedding losses sums; do
        check first.fp32.fused.$name "$most" ./operations $fp32 1e-5 small $name fused
        check first.bf16.fused.$name "$most" ./operations $bf16 1e-2 small $name fused
    done
    reference dualpipe.1 --steps 1 $small dualpipe.bin
    for type in fp32:$fp32:1e-5 bf16:$bf16:2e-2; do
        name=${type%%:*} bound=${type##*:} device=${type#*:} device=${device%:*}
        compare first.$name.training $bound "$most" --device $device --steps 1 --in-turn $small dualpipe.bin
        compare first.$name.training.fused $bound "$most" --device $device --steps 1 $small dualpipe.bin
    done
    unset CUDA_LAUNCH_BLOCKING
    debugger=
    nccl_of first.nccl --steps 1
}

operations() {
    check operations.fp32 240 ./operations $fp32 1e-5
    check operations.bf16 240 ./operations $bf16 1e-2
}

training() {
    hangs=0
    for program in *.bin; do
        if [ $hangs -ge 3 ]; then
            fail training "given up: too much hangs" - -
            break
        fi
        kind=${program%.bin}
        reference "$kind" --steps 4 $small "$program"
        compare "training.fp32.$kind" 1e-5 60 --device $fp32 --steps 4 $small "$program"
        compare "training.bf16.$kind" 2e-2 60 --device $bf16 --steps 4 $small "$program"
    done
    losses b.txt 60 --device $fp32 --steps 4 --in-turn $small dualpipe.bin
    compare fused.fp32.dualpipe 0 60 --device $fp32 --steps 4 $small dualpipe.bin
    reference curve.dualpipe --steps 40 dualpipe.bin
    compare curve.bf16.dualpipe 2e-2 120 --device $bf16 --steps 40 dualpipe.bin
}

nccl() {
    nccl_of nccl.one_rank --steps 2
}

sanitizer() {
    sanitizer=$(command -v compute-sanitizer || ls "$cuda/bin/compute-sanitizer" 2>/dev/null)
    if [ -z "$sanitizer" ] || [ -n "$dry" ]; then
        note compute-sanitizer skipped "${dry:-not installed}" -
        return
    fi
    for tool in memcheck racecheck; do
        check "$tool.operations" 200 "$sanitizer" --tool $tool --error-exitcode 9 ./operations cuda 1e-2 small
    done
    check memcheck.training 120 "$sanitizer" --tool memcheck --error-exitcode 9 ./dprun --device cuda --steps 1 $small dualpipe.bin
}

figures() {
    for program in speed overlap; do
        within 240 ./$program
        while read -r name value unit; do note "$name" "$value" "$unit" ./$program; done < out.txt
        [ $status = 0 ] || [ -n "$dry" ] || fail $program "$verdict" - ./$program
    done
    large="--set hidden=2048 --set heads=16 --set sequence=2048 --set microbatch_size=1"
    [ -z "$dry" ] || large=$small
    for program in 1f1b.bin dualpipe.bin "--in-turn dualpipe.bin"; do
        name=step.$(echo "$program" | sed 's/--\([^ ]*\) \(.*\)/\2.\1/; s/.bin//')
        within 120 ./dprun --device $bf16 --json --steps 6 $large $program
        [ $status = 0 ] || fail "$name" "$verdict" - "dprun --device $bf16 --steps 6 $large $program"
        for figure in step_ms tokens_per_s bubble_rate; do
            value=$(tail -1 out.txt | sed -n "s/.*\"$figure\":\([^,}]*\).*/\1/p")
            [ -z "$value" ] || note "$name.$figure" "$value" - "dprun --device $bf16 --steps 6 $large $program"
        done
    done
}

for part in $parts; do
    $part
done

echo "${gpu:-no GPU}, driver ${driver:-none}: $failed failed$bad"
echo "the table is $table, what the programs said is $log"
[ "$failed" = 0 ]
