# Prints the C table of what is put into the program (CudaImage): sh embed.sh FILE..., each a source, a header or a
# NAME.ARCHITECTURE.cubin.
cat <<'HEAD'
#include "runtime/cuda/cuda.h"

#define IMAGE(symbol, path)                                                                                      \
    __asm__(".section .rodata\n.balign 64\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.previous\n"); \
    extern const char symbol[];
HEAD
number=0
for path; do
    echo "IMAGE(image_$((number += 1)), \"$path\")"
done
echo "const CudaImage cuda_images[] = {"
number=0
for path; do
    name=$(basename "$path" .cu)
    architecture=NULL
    case $name in
    *.cubin)
        name=${name%.cubin}
        architecture="\"${name##*.}\""
        name=${name%.*}
        ;;
    esac
    echo "    {\"$name\", $architecture, image_$((number += 1))},"
done
echo "    {NULL, NULL, NULL},"
echo "};"
