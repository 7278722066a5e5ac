# Runs everything that needs a GPU, on a machine with one and perhaps nothing else:
#
#     sh run.sh [--dry-run] [--seconds N] [FOLDER [PART...]]
#
# It is in a folder with the programs, libraries, references and text that it needs (`make gpu-kit` fills build/gpu and packs it).
# The parts, in the order of their value, all unless some are named:
#
#     first       the smallest form of everything that never ran, each in a process of its own for at most FIRST_SECONDS (8)
#     figures     times beside cuBLAS, of F&Bs and of steps; large products are compared with sums on the CPU
#     peers       what PyTorch reaches with the same layers and attentions
#     operations  every operation and shape against the oracle
#     training    losses against those of the CPU, which are in reference/
#     bits        1000 launches, alone and of two ranks at once, give the same bits
#     nvrtc       a plug-in without machine code: one step, and how long the first start takes
#     pairs       two processes on one GPU: dprun under mpirun, dps.torch under torchrun, and what happens if one is killed
#     profile     ncu's figures of the three most important kernels
#     sanitizer   compute-sanitizer
#
# Each line is printed and written to FOLDER/<date>.csv (default: results, here) at once; wrong outputs go to FOLDER/wrong, with
# what was expected. Each part ends after a time of its own. A failure or hang is reported, and the rest continues. --seconds N:
# after this time nothing starts, and running programs are ended. --dry-run: smaller shapes and fewer rounds, for `make dry-run-gpu`.
here=$(cd "$(dirname "$0")" && pwd)
fp32=cuda-fp32 bf16=cuda dry='' end=''
while :; do
    case $1 in
    --dry-run) dry="dry run" ;;
    --seconds) end=$(($(date +%s) + $2)) && shift ;;
    *) break ;;
    esac
    shift
done
results=${1:-$here/results}
[ $# -gt 0 ] && shift
all="first figures peers operations training bits nvrtc pairs profile sanitizer"
parts=${*:-$all}
for part in $parts; do
    case " $all " in *" $part "*) ;; *) echo "there is no part $part: $all" && exit 2 ;; esac
done
mkdir -p "$results/wrong" && results=$(cd "$results" && pwd)
export WRONG="$results/wrong"
cd "$here" || exit 1
# The libraries in the kit's folder come before those of the machine and of its PyTorch. The compiler (NVRTC) is mostly
# the machine's.
cuda=${CUDA_HOME:-/usr/local/cuda}
python=${PYTHON:-python3}
torch=$($python -c 'import glob, nvidia; print(":".join(glob.glob(list(nvidia.__path__)[0] + "/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$cuda/lib64${torch:+:$torch}" XDG_CACHE_HOME="$here/cache"
./dprun --help > /dev/null || { echo "dprun does not start here: the kit was made for another Linux ($(uname -m), the C library)"; exit 1; }
log=$results/$(date +%Y-%m-%d).log
table=$results/$(date +%Y-%m-%d).csv
gpu=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
driver=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
small="--data text --set hidden=64 --set heads=2 --set sequence=32 --set microbatch_size=2"
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
    [ -z "$dry" ] || seconds=$((6 * seconds)) # the mock computes on the CPU
    for until in $end $part_end; do
        [ $((until - $(date +%s))) -ge "$seconds" ] || seconds=$((until - $(date +%s)))
    done
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

# An invalid access names the kernel, not the line: the same again under compute-sanitizer.
sanitizer=$(command -v compute-sanitizer || ls "$cuda/bin/compute-sanitizer" 2>/dev/null)
look_closer() {
    case $verdict in
    *"illegal memory"* | *misaligned* | *"illegal instruction"*)
        [ -z "$sanitizer" ] || timeout -k 3 60 "$sanitizer" --tool memcheck "$@" 2>&1 | tee -a "$log" | grep -m 1 -A 2 Invalid | plain ;;
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
        fail "$name" "$verdict$(look_closer "$@")" "$(($(date +%s) - began)) s" "$*"
    fi
}

skip() { note "$1" skipped "$2" -; }

# The figures that a program prints: name, value, unit.
figures_of() { # seconds command...
    within "$@"
    shift
    while read -r name value unit; do note "$name" "$value" "$unit" "$*"; done < out.txt
    [ $status = 0 ] || fail "$1" "$verdict" - "$*"
}

losses() { # FILE seconds options...: the losses of a run, one a line
    local file=$1 most=$2
    shift 2
    within "$most" ./dprun --json --deadline 15 "$@"
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out.txt > "$file"
}

reference() { cp "reference/$1" b.txt; } # NAME: the losses of the CPU, in b.txt

judge() { # name bound command: whether the losses in a.txt are those in b.txt, each off by at most this share
    if [ $status != 0 ]; then
        fail "$1" "$verdict" off "$3"
    elif paste a.txt b.txt | awk -v bound="$2" 'NF != 2 || !($1 > 0) { bad = 1 }
            { off = ($1 - $2) / $2; off = off < 0 ? -off : off; if (off > worst) worst = off }
            END { printf "%.2e", worst; exit bad || NR == 0 || worst > bound }' > worst.txt; then
        note "$1" "$(cat worst.txt)" off "$3"
    else
        fail "$1" "FAIL: $(cat worst.txt)" off "$3"
        paste -d ' ' a.txt b.txt > "$WRONG/$1"
    fi
}

compare() { # name bound seconds options...: a run has the losses that are in b.txt
    local name=$1 bound=$2
    shift 2
    losses a.txt "$@"
    shift
    judge "$name" "$bound" "dprun $*"
}

nccl_of() { # name options...: one rank that sends to itself
    local name=$1
    shift
    within 30 ./dprun --device cuda --transport nccl --deadline 15 --reference $small "$@" 1f1b.bin
    case $verdict in
    pass) note "$name" pass - "dprun --transport nccl $*" ;;
    *"NCCL is not installed"*) note "$name" skipped "NCCL is not installed" - ;;
    *) fail "$name" "$verdict" - "dprun --transport nccl $*" ;;
    esac
}

first() {
    local most name type bound device fused
    most=${FIRST_SECONDS:-8} debugger=$(command -v cuda-gdb)
    check first.open 120 ./operations $bf16 1e-2 small none # it may have to compile its kernels first
    if [ $status != 0 ] && [ -z "$gpu$dry" ]; then
        echo "this machine runs nothing on a GPU"
        exit 1
    fi
    export CUDA_LAUNCH_BLOCKING=1 # an error comes with the kernel that makes it
    for name in linear attention norm gelu embedding losses sums adamw; do
        for type in bf16:$bf16:1e-2 fp32:$fp32:1e-5; do
            bound=${type##*:} device=${type#*:} device=${device%:*} type=${type%%:*}
            check first.$type.$name "$most" ./operations $device $bound small $name
            [ $name != adamw ] || continue # it is no operation of a list
            if [ "${fused:-0}" -ge 2 ]; then
                fail first.$type.fused.$name "given up: two fused launches hang" - -
                continue
            fi
            before=$hangs
            check first.$type.fused.$name "$most" ./operations $device $bound small $name fused
            fused=$((${fused:-0} + hangs - before))
        done
    done
    reference first
    for type in bf16:$bf16:2e-2 fp32:$fp32:1e-5; do
        bound=${type##*:} device=${type#*:} device=${device%:*} type=${type%%:*}
        compare first.$type.training $bound $((2 * most)) --device $device --steps 1 --in-turn $small dualpipe.bin
        compare first.$type.training.fused $bound $((2 * most)) --device $device --steps 1 $small dualpipe.bin
    done
    unset CUDA_LAUNCH_BLOCKING
    debugger=
    nccl_of first.nccl --steps 1
}

operations() {
    check operations.bf16 120 ./operations $bf16 1e-2 ${dry:+small}
    check operations.fp32 120 ./operations $fp32 1e-5 ${dry:+small}
}

training() {
    for program in dualpipe zb-v 1f1b; do
        reference $program
        compare training.fp32.$program 1e-5 30 --device $fp32 --steps 4 $small $program.bin
        compare training.bf16.$program 2e-2 30 --device $bf16 --steps 4 $small $program.bin
    done
    losses b.txt 30 --device $fp32 --steps 4 --in-turn $small dualpipe.bin
    compare fused.fp32.dualpipe 1e-6 30 --device $fp32 --steps 4 $small dualpipe.bin
    [ -n "$dry" ] || { reference curve && compare curve.bf16.dualpipe 2e-2 60 --device $bf16 --data text --steps 40 dualpipe.bin; }
}

bits() {
    figures_of 90 ./overlap bits ${dry:+8 small}
    for try in 1 2; do
        losses $try.txt 30 --device $bf16 --steps 10 $small dualpipe.bin
        [ $status = 0 ] || fail bits.dualpipe "$verdict" - "dprun --device $bf16 --steps 10 $small dualpipe.bin"
    done
    if cmp -s 1.txt 2.txt; then note bits.dualpipe pass - "two runs of dualpipe.bin"; else fail bits.dualpipe "FAIL: other losses" - -; fi
}

nvrtc() {
    export XDG_CACHE_HOME="$here/empty"
    rm -rf empty
    for start in first second; do
        began=$(date +%s%N)
        within 150 nvrtc/dprun --device $bf16 --steps 1 $small 1f1b.bin
        if [ $status = 0 ]; then
            note nvrtc.$start $((($(date +%s%N) - began) / 1000000)) ms "nvrtc/dprun --device $bf16 --steps 1"
        else
            fail nvrtc.$start "$verdict" - "nvrtc/dprun --device $bf16 --steps 1"
        fi
    done
    export XDG_CACHE_HOME="$here/cache"
}

# Different values of NCCL_HOSTID let NCCL take two processes on one GPU; it then sends through sockets.
pairs() {
    export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
    if command -v mpirun > /dev/null; then
        own='NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec ./dprun "$@"'
        mpirun="mpirun --allow-run-as-root --oversubscribe -n 4"
        reference dualpipe
        within 60 $mpirun sh -c "$own" sh --device $fp32 --json --deadline 15 --steps 4 $small dualpipe.bin
        sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out.txt > a.txt
        judge pairs.dprun 1e-5 "mpirun -n 4 dprun --device $fp32 dualpipe.bin"
        # The rank is a child of the process that guards it. What kills it must be no child of that process: it would kill itself.
        within 60 $mpirun sh -c "[ \$OMPI_COMM_WORLD_RANK != 2 ] || ({ sleep 15; kill -9 \$(cat /proc/\$\$/task/*/children); } &); $own" sh --device $fp32 --deadline 15 \
            --steps 100000 $small dualpipe.bin
        ended_by_the_loss pairs.dprun.killed 'rank 2 was killed'
    else
        skip pairs.dprun "there is no mpirun"
    fi
    if $python -c 'import torch' 2> /dev/null; then
        run="$python -m torch.distributed.run --nproc_per_node 2 pair.py"
        check pairs.torch 120 env PYTHONPATH=python DPS_LIBRARY=./libdps.so ${dry:+CUDA_VISIBLE_DEVICES=} $run
        # without torchrun, which would end rank 0 itself
        within 120 env PYTHONPATH=python DPS_LIBRARY=./libdps.so ${dry:+CUDA_VISIBLE_DEVICES=} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29471 \
            sh -c "RANK=1 $python pair.py kill & RANK=0 exec $python pair.py kill"
        ended_by_the_loss pairs.torch.killed 'rank 1'
    else
        skip pairs.torch "there is no PyTorch"
    fi
}

ended_by_the_loss() { # name words: the last command had to fail, in time, and with these words for the rank that was killed
    case $status in
    0 | 124 | 125 | 137) fail "$1" "${verdict:-FAIL} (it should have ended with an error)" - - ;;
    *) if grep -q "$2" err.txt; then note "$1" pass - "$(grep -m 1 "$2" err.txt | plain)"; else fail "$1" "$verdict" - -; fi ;;
    esac
}

profile() {
    ncu=$(command -v ncu || ls "$cuda/bin/ncu" 2> /dev/null)
    if [ -z "$ncu" ]; then
        skip profile "there is no ncu"
        return
    fi
    for kernel in "fused_hopper:overlap 1024" hopper_forward:speed "attention_backward:speed attention"; do
        within 60 "$ncu" --clock-control none --set detailed -k "regex:${kernel%:*}" -c 3 --kill yes ./${kernel#*:}
        cp out.txt "$results/ncu.${kernel%:*}.txt"
        grep -q Duration out.txt || fail profile.${kernel%:*} "$verdict" - ncu
        sed -n 's/.*\(Tensor[A-Za-z ()]*\|Duration\|Registers Per Thread\|DRAM Throughput\|Compute (SM) Throughput\)  *\([^ ]*\)  *\([0-9.,]*\)$/\1=\3 \2/p' out.txt |
            while IFS='=' read -r what value; do note "profile.${kernel%:*}.$(echo "$what" | tr ' ' _)" "$value" - ncu; done
    done
}

sanitizer() {
    if [ -z "$sanitizer" ]; then
        skip sanitizer "there is no compute-sanitizer"
        return
    fi
    for tool in memcheck racecheck; do
        check "$tool.operations" 100 "$sanitizer" --tool $tool --error-exitcode 9 ./operations $bf16 1e-2 small
    done
    check memcheck.training 60 "$sanitizer" --tool memcheck --error-exitcode 9 ./dprun --device $bf16 --steps 1 $small dualpipe.bin
}

figures() {
    figures_of 150 ./speed ${dry:+small}
    figures_of 60 ./overlap ${dry:+small}
    figures_of 30 ./overlap operations ${dry:+small}
    large="--data text --set hidden=2048 --set heads=16 --set sequence=2048 --set microbatch_size=1"
    [ -z "$dry" ] || large=$small
    for program in 1f1b.bin dualpipe.bin "--in-turn dualpipe.bin" "--reference dualpipe.bin"; do
        name=step.$(echo "$program" | sed 's/--\([^ ]*\) \(.*\)/\2.\1/; s/.bin//')
        within 30 ./dprun --device $bf16 --json --steps 6 $large $program
        [ $status = 0 ] || fail "$name" "$verdict" - "dprun --device $bf16 --steps 6 $large $program"
        for figure in step_ms tokens_per_s bubble_rate; do
            value=$(tail -1 out.txt | sed -n "s/.*\"$figure\":\([^,}]*\).*/\1/p")
            [ -z "$value" ] || note "$name.$figure" "$value" - "dprun --device $bf16 --steps 6 $large $program"
        done
    done
}

peers() {
    if $python -c 'import torch.nn.attention' 2> /dev/null; then
        for part in ceilings attention layers; do figures_of 100 $python peers.py ${dry:+--small} $part; done
        # DUALPIPE: a copy of github.com/deepseek-ai/DualPipe; without it, its class is not measured
        figures_of 100 env PYTHONPATH=python DPS_LIBRARY=./libdps.so ${dry:+CUDA_VISIBLE_DEVICES=} $python dualpipev.py ${dry:+--small} $DUALPIPE
    else
        skip peers "there is no PyTorch 2"
    fi
}

# seconds that each part may take
limit_of() {
    case $1 in
    first) echo 240 ;;
    figures | peers | pairs) echo 300 ;;
    *) echo 200 ;;
    esac
}
for part in $parts; do
    part_end=$(($(date +%s) + ${dry:+6 *} $(limit_of $part)))
    $part
done

echo "${gpu:-no GPU}, driver ${driver:-none}: $failed failed$bad"
echo "the table is $table, what the programs said is $log"
[ "$failed" = 0 ]
