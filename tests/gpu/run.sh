# Everything that takes a GPU, on a machine that has one and perhaps nothing else: sh run.sh [FOLDER]
#
# It lies in a folder of its own with the programs and libraries that it needs (`make gpu-kit` fills build/gpu and packs it).
# Checks come first, then figures; each is a line of the table at the end and of FOLDER/<date>.csv (default: results, here).
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-$here/results}
mkdir -p "$results" && results=$(cd "$results" && pwd)
cd "$here" || exit 1
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" XDG_CACHE_HOME="$here/cache"
log=$results/$(date +%Y-%m-%d).log
table=$results/$(date +%Y-%m-%d).csv
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
small="--set hidden=64 --set heads=2 --set sequence=32 --set microbatch_size=2"
failed=0
: > "$log"
echo "date,gpu,driver,name,value,unit,command" > "$table"

note() { # name value unit command
    echo "$(date +%Y-%m-%dT%H:%M:%S),$gpu,$driver,$1,$2,$3,\"$4\"" >> "$table"
    printf '%-48s %s %s\n' "$1" "$2" "$3"
}

check() { # name command...: passes when the command does
    name=$1
    shift
    echo "== $name: $*" >> "$log"
    if timeout 300 "$@" >> "$log" 2>&1; then
        note "$name" pass - "$*"
    else
        note "$name" FAIL - "$*"
        failed=$((failed + 1))
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

./dprun --device cuda --steps 1 $small 1f1b.bin > start.txt 2>&1 || { cat start.txt; echo "this machine runs nothing on a GPU"; exit 1; }

check operations.fp32 ./operations cuda-fp32 1e-5
check operations.bf16 ./operations cuda 1e-2

for program in *.bin; do
    name=${program%.bin}
    losses b.txt --device cpu --reference --steps 4 $small "$program"
    losses a.txt --device cuda-fp32 --steps 4 $small "$program"
    compare "training.fp32.$name" 1e-5 "dprun --device cuda-fp32 --steps 4 $small $program"
    losses a.txt --device cuda --steps 4 $small "$program"
    compare "training.bf16.$name" 2e-2 "dprun --device cuda --steps 4 $small $program"
done
losses b.txt --device cuda-fp32 --steps 4 --in-turn $small dualpipe.bin
losses a.txt --device cuda-fp32 --steps 4 $small dualpipe.bin
compare fused.fp32.dualpipe 0 "dprun --device cuda-fp32 --steps 4 $small dualpipe.bin, and with --in-turn"
losses b.txt --device cpu --reference --steps 40 dualpipe.bin
losses a.txt --device cuda --steps 40 dualpipe.bin
compare curve.bf16.dualpipe 2e-2 "dprun --device cuda --steps 40 dualpipe.bin"

if ldconfig -p 2>/dev/null | grep -q libnccl.so.2 || [ -e lib/libnccl.so.2 ]; then
    check nccl.one_rank ./dprun --device cuda --transport nccl --reference --steps 2 $small 1f1b.bin
else
    note nccl.one_rank skipped "NCCL is not installed" -
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        check "$tool.operations" "$sanitizer" --tool $tool --error-exitcode 9 ./operations cuda 1e-2 small
    done
    check memcheck.training "$sanitizer" --tool memcheck --error-exitcode 9 ./dprun --device cuda --steps 1 $small dualpipe.bin
else
    note compute-sanitizer skipped "not installed" -
fi

for program in speed overlap; do
    ./$program > figures.txt 2>> "$log" || { note $program FAIL - ./$program; failed=$((failed + 1)); }
    while read -r name value unit; do note "$name" "$value" "$unit" ./$program; done < figures.txt
done
large="--set hidden=2048 --set heads=16 --set sequence=2048 --set microbatch_size=1"
for program in 1f1b.bin dualpipe.bin "--in-turn dualpipe.bin"; do
    ./dprun --device cuda --json --steps 6 $large $program 2>> "$log" | tail -1 > step.txt
    for figure in step_ms tokens_per_s bubble_rate; do
        note "step.$(echo "$program" | sed 's/--\([^ ]*\) \(.*\)/\2.\1/; s/.bin//').$figure" \
            "$(sed -n "s/.*\"$figure\":\([^,}]*\).*/\1/p" step.txt)" - "dprun --device cuda --steps 6 $large $program"
    done
done

echo "$gpu, driver $driver: $failed failed; the table is $table, what the programs said is $log"
[ "$failed" = 0 ]
