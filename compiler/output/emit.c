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

void emit(const Emission *emission, EmitKind kind, FILE *stream)
{
    const Compilation *c = emission->compilation;
    const Picture picture = emission_picture(emission);
    switch (kind) {
    case EMIT_CSV:
    case EMIT_COMMS: emit_csv(&c->schedule, kind == EMIT_COMMS, stream); break;
    case EMIT_ASM: program_disassemble(c->program, stream); break;
    case EMIT_OVERLAP: emit_overlap(c, stream); break;
    case EMIT_SVG: emit_svg(&picture, NULL, emission->svg_width, c->arena, stream); break;
    case EMIT_HTML: emit_html(&picture, NULL, c->arena, stream); break;
    case EMIT_TRACE: emit_trace(&picture, c->arena, stream); break;
    case EMIT_EXPLAIN: explain(c, emission->times, stream); break;
    case EMIT_TEXT: emit_text(&picture, emission->terminal, c->arena, stream); break;
    default: emit_stats(&picture, emission->memory, c->arena, stream); break;
    }
}
