/* Writes any output of a compilation (EmitKind) by calling the function for it. */

#include "compiler/output/emit.h"

#include "compiler/output/explain.h"

Picture emission_picture(const Emission *emission)
{
    const Compilation *c = emission->compilation;
    return (Picture){.source = c->source,
                     .schedule = &c->schedule,
                     .table = &c->table,
                     .times = emission->times,
                     .gap = emission->gap,
                     .proven = emission->proven,
                     .program = c->program};
}

void emit(const Emission *e, EmitKind kind, FILE *stream)
{
    const Compilation *c = e->compilation;
    const Picture picture = emission_picture(e);
    switch (kind) {
#define EMIT(kind, name, help, write) \
    case EMIT_##kind:                 \
        write;                        \
        break;
#include "compiler/output/kinds.def"
#undef EMIT
    case EMIT_KINDS: break;
    }
}
