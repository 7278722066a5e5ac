/* The last steps as Chrome trace events: one thread a rank, one event an instruction, named by the disassembler's text. */
#include "runtime/vm/machine.h"

#include <stdlib.h>

enum { TEXT_BYTES = 160 };

/* Instruction i of the step with these clocks; an F&B, which is three instructions, is one event. Returns the next. */
static uint32_t write_event(const Rank *rank, const int64_t *clock, uint32_t i, uint64_t step, int64_t origin, FILE *stream)
{
    const Program *program = rank->session->loaded->program;
    const uint32_t number = (uint32_t)rank->number;
    const Instruction *instruction = &program->ranks[number].instructions[i];
    char name[2 * TEXT_BYTES + 3], first[TEXT_BYTES], second[TEXT_BYTES];
    uint32_t next = i + 1;
    if (instruction->opcode == OP_OVERLAP) {
        program_instruction_text(program, number, instruction + 1, first, sizeof first);
        program_instruction_text(program, number, instruction + 2, second, sizeof second);
        snprintf(name, sizeof name, "%s & %s", first, second);
        next = i + 3;
    } else {
        program_instruction_text(program, number, instruction, name, TEXT_BYTES);
    }
    fprintf(stream,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"step\":%llu,\"instruction\":%u,\"line\":%u}}",
            name, program_trace_category(instruction->opcode), number, (double)(clock[i] - origin) / 1e3,
            (double)(clock[next] - clock[i]) / 1e3, (unsigned long long)step, i, instruction->line);
    return next;
}

static const int64_t *step_clock(const Rank *rank, uint64_t step)
{
    const Session *session = rank->session;
    return rank->clocks + (step - 1) % session->kept_steps * (session->longest_stream + 1);
}

static void write_rank(const Rank *rank, uint64_t first_step, uint64_t last_step, int64_t origin, FILE *stream)
{
    const Instruction *instructions = rank->session->loaded->program->ranks[rank->number].instructions;
    fprintf(stream, "%s\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            rank->number ? "," : "", rank->number, rank->number);
    for (uint64_t step = first_step; step <= last_step; step++)
        for (uint32_t i = 0; instructions[i].opcode != OP_END;)
            i = write_event(rank, step_clock(rank, step), i, step, origin, stream);
}

Status trace_steps(Rank *rank, FILE *stream, Error *error)
{
    const Session *session = rank->session;
    const uint64_t steps = rank->step;
    const uint64_t first_step = steps > session->kept_steps ? steps - session->kept_steps + 1 : 1;
    const uint32_t ranks = session->loaded->program->rank_count;
    int64_t *begun = (int64_t *)(void *)rank->pieces;
    TRY(rank->transport->gather(rank->endpoint, step_clock(rank, first_step), sizeof *begun, begun, error));
    int64_t origin = begun[0];
    for (uint32_t r = 1; r < ranks; r++)
        origin = begun[r] < origin ? begun[r] : origin;

    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory)
        write_rank(rank, first_step, steps, origin, memory);
    if (!memory || fclose(memory) != 0) {
        free(text);
        return error_set(error, STATUS_RUN_FAILED, "rank %d: no memory for the text of its trace", rank->number);
    }
    if (stream)
        fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", stream);
    Status status = STATUS_OK;
    for (uint32_t r = 0; status == STATUS_OK && r < ranks; r++)
        status = collect(rank, (int)r, text, size, stream, error);
    free(text);
    if (stream)
        fputs("\n]}\n", stream);
    return status;
}
