/* File to proven program. */
#include "runtime/executor/executor.h"

#include "runtime/base/file.h"
#include "runtime/base/text.h"

Status program_derive(Program *program, bool reference, bool forward_only, bool in_order, Arena *arena,
                      LoadedProgram *loaded, Error *error)
{
    TRY(program_verify(program, error));
    if (reference) {
        TRY(program_reference(program, arena, &program, error));
        TRY(program_verify(program, error));
    }
    Program *forward = program;
    if (!program->forward_only) {
        TRY(program_forward_only(program, arena, &forward, error));
        TRY(program_verify(forward, error));
    }
    if (!in_order)
        TRY(program_post_early(program, arena, error));
    if (!in_order && forward != program)
        TRY(program_post_early(forward, arena, error));
    loaded->program = forward_only ? forward : program;
    loaded->forward = forward;
    return STATUS_OK;
}

Status program_load(const char *path, bool reference, bool forward_only, bool in_order, Arena *arena,
                    LoadedProgram *loaded, Error *error)
{
    char *bytes;
    size_t size;
    TRY(file_read(path, arena, &bytes, &size, error));
    Program *program = NULL;
    Status status = program_decode((const uint8_t *)bytes, size, arena, &program, error);
    if (status == STATUS_OK) { /* whoever wrote the names: they will be shown on terminals */
        text_make_printable(program->schedule);
        text_make_printable(program->source);
        status = program_derive(program, reference, forward_only, in_order, arena, loaded, error);
    }
    if (status != STATUS_OK)
        error_prefix(error, "%s: ", path);
    return status;
}
