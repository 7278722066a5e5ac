/* Checks the effects in operations.def. An operand that an operation reads stays unchanged and, on at least one device,
   affects the result. The new content of an operand that it writes does not depend on the old content; the new content
   of an operand that it adds to or changes does. Runs every operation on the CPU device and the oracle, with one
   operand changed at a time. */

#include "runtime/device/group.h"
#include "tests/device/pair.h"

#include <string.h>

enum { ROWS = 6, COLUMNS = 8, OUTPUTS = 12, SEQUENCE = 3, HEADS = 2, NUMBERS = 40, TABLE_ROWS = 8 };
enum { IN = ROWS * COLUMNS, OUT = ROWS * OUTPUTS, WEIGHTS = COLUMNS * OUTPUTS, CONTEXT = -1 };
/* as many as TABLE_ROWS, because the same random tokens are used as numbers of experts */
enum { EXPERTS = TABLE_ROWS, CHOSEN = 2, ROUTED = ROWS * CHOSEN };
enum { ROUTED_IN = ROUTED * COLUMNS, ROUTED_OUT = ROUTED * OUTPUTS };

/* What kind of numbers an operand has. NONE: there is no such operand; PLACE: a permutation of ROUTED rows; BEGIN: the
   first row of each expert. */
typedef enum Form { NONE, ELEMENT, FLOAT, TOKEN, PLACE, BEGIN, LOSS } Form;

/* An operation with a shape, and for each operand the kind and the number of its elements. The number CONTEXT: as many
   as the kernel saves for the backward. */
typedef struct Subject {
    OpKind kind;
    KernelShape shape, gelu; /* without rows: the operation has no such kernel */
    /* table: the operation has rows, columns and sequence instead of a kernel; in_bytes: Op.count is in bytes */
    bool table, in_bytes;
    bool posts, waits; /* the operation has an exchange: it posts the all-to-all, or waits for it */
    bool copies;       /* the operation has a table of copies of experts */
    struct {
        Form form;
        int count;
    } operands[OPERATION_OPERANDS];
} Subject;

static const KernelShape linear = {.kind = KERNEL_LINEAR, .rows = ROWS, .columns = COLUMNS, .outputs = OUTPUTS};
static const KernelShape norm = {.kind = KERNEL_NORM, .rows = ROWS, .columns = COLUMNS};
static const KernelShape gelu = {.kind = KERNEL_GELU, .rows = ROWS, .columns = COLUMNS};
static const KernelShape gelu_out = {.kind = KERNEL_GELU, .rows = ROWS, .columns = OUTPUTS};
static const KernelShape loss = {.kind = KERNEL_CROSS_ENTROPY, .rows = ROWS, .columns = COLUMNS};
static const KernelShape attention = {
    .kind = KERNEL_ATTENTION, .rows = ROWS, .columns = COLUMNS, .sequence = SEQUENCE, .heads = HEADS};

#define ROUTING                                                                          \
    {                                                                                    \
        .experts = EXPERTS, .chosen = CHOSEN, .groups = 4, .best_groups = 2, .factor = 2 \
    }
static const KernelShape router = {.kind = KERNEL_ROUTER, .rows = ROWS, .sequence = SEQUENCE, .routing = ROUTING};
static const KernelShape permute = {.kind = KERNEL_PERMUTE, .rows = ROWS, .columns = COLUMNS, .routing = ROUTING};
static const KernelShape grouped = {
    .kind = KERNEL_GROUPED, .rows = ROUTED, .columns = COLUMNS, .outputs = OUTPUTS, .routing = ROUTING};
static const KernelShape swiglu = {
    .kind = KERNEL_SWIGLU,
    .rows = ROUTED,
    .columns = COLUMNS,
    /* 6 of the 8 experts: with seed 1 they have all rows, with seed 2 half of them (begin_of), so the result depends on
       where the rows of each expert begin */
    .routing = {.experts = ROUTED / 2}};

/* clang-format off */
#define E(number) {ELEMENT, number}
static void subjects_of(Subject *subjects)
{
    const Subject all[OPERATION_KINDS] = {
        {OPERATION_linear_forward, .shape = linear, .operands = {E(IN), E(WEIGHTS), E(OUTPUTS), E(OUT), E(OUT)}},
        {OPERATION_linear_backward_input, .shape = linear, .operands = {E(OUT), E(WEIGHTS), E(IN)}},
        {OPERATION_linear_backward_weight, .shape = linear, .operands = {E(IN), E(OUT), E(WEIGHTS), E(OUTPUTS)}},
        {OPERATION_linear_gelu_forward, .shape = linear, .gelu = gelu_out,
         .operands = {E(IN), E(WEIGHTS), E(OUTPUTS), E(OUT), E(OUT)}},
        {OPERATION_linear_gelu_backward_input, .shape = linear, .gelu = gelu,
         .operands = {E(OUT), E(WEIGHTS), E(IN), E(IN)}},
        {OPERATION_norm_forward, .shape = norm, .operands = {E(IN), E(COLUMNS), E(COLUMNS), E(IN), E(CONTEXT)}},
        {OPERATION_norm_backward_input, .shape = norm,
         .operands = {E(IN), E(CONTEXT), E(COLUMNS), E(IN), E(IN), E(IN)}},
        {OPERATION_norm_backward_weight, .shape = norm,
         .operands = {E(IN), E(CONTEXT), E(IN), E(COLUMNS), E(COLUMNS)}},
        {OPERATION_gelu_forward, .shape = gelu, .operands = {E(IN), E(IN)}},
        {OPERATION_gelu_backward, .shape = gelu, .operands = {E(IN), E(IN), E(IN)}},
        {OPERATION_attention_forward, .shape = attention, .operands = {E(3 * IN), E(IN), E(CONTEXT)}},
        {OPERATION_attention_backward, .shape = attention,
         .operands = {E(3 * IN), E(IN), E(CONTEXT), E(IN), E(3 * IN)}},
        {OPERATION_embedding_forward, .table = true,
         .operands = {{TOKEN, ROWS}, E(TABLE_ROWS * COLUMNS), E(SEQUENCE * COLUMNS), E(IN)}},
        {OPERATION_embedding_backward, .table = true,
         .operands = {{TOKEN, ROWS}, E(IN), E(TABLE_ROWS * COLUMNS), E(SEQUENCE * COLUMNS)}},
        {OPERATION_cross_entropy, .shape = loss, .operands = {{TOKEN, ROWS}, E(IN), {LOSS, 1}}},
        {OPERATION_squared_error, .operands = {E(NUMBERS), {FLOAT, NUMBERS}, E(NUMBERS), {LOSS, 1}}},
        {OPERATION_from_floats, .operands = {{FLOAT, NUMBERS}, E(NUMBERS)}},
        {OPERATION_to_floats, .operands = {E(NUMBERS), {FLOAT, NUMBERS}}},
        {OPERATION_copy, .in_bytes = true, .operands = {E(NUMBERS), E(NUMBERS)}},
        {OPERATION_add, .operands = {E(NUMBERS), E(NUMBERS)}},
        {OPERATION_route, .shape = router,
         .operands = {E(ROWS * EXPERTS), E(EXPERTS), {TOKEN, ROUTED}, E(ROUTED), E(1)}},
        {OPERATION_route_backward, .shape = router,
         .operands = {E(ROWS * EXPERTS), {TOKEN, ROUTED}, E(ROUTED), E(ROWS * EXPERTS)}},
        {OPERATION_group_rows, .shape = router, .operands = {{TOKEN, ROUTED}, {PLACE, ROUTED}, {BEGIN, EXPERTS + 1}}},
        {OPERATION_count_loads, .shape = router, .operands = {{BEGIN, EXPERTS + 1}, E(1), E(EXPERTS), E(1)}},
        {OPERATION_permute, .shape = permute, .operands = {E(IN), {PLACE, ROUTED}, E(ROUTED_IN)}},
        {OPERATION_unpermute, .shape = permute,
         .operands = {E(ROUTED_IN), {PLACE, ROUTED}, E(ROUTED), E(IN), E(IN)}},
        {OPERATION_unpermute_backward, .shape = permute,
         .operands = {E(ROUTED_IN), {PLACE, ROUTED}, E(ROUTED), E(IN), E(ROUTED_IN), E(ROUTED)}},
        {OPERATION_grouped_forward, .shape = grouped,
         .operands = {E(ROUTED_IN), E(EXPERTS * WEIGHTS), {BEGIN, EXPERTS + 1}, E(ROUTED_OUT)}},
        {OPERATION_grouped_backward_input, .shape = grouped,
         .operands = {E(ROUTED_OUT), E(EXPERTS * WEIGHTS), {BEGIN, EXPERTS + 1}, E(ROUTED_IN)}},
        {OPERATION_grouped_backward_weight, .shape = grouped,
         .operands = {E(ROUTED_IN), E(ROUTED_OUT), {BEGIN, EXPERTS + 1}, E(EXPERTS * WEIGHTS)}},
        {OPERATION_swiglu_forward, .shape = swiglu,
         .operands = {E(2 * ROUTED_IN), {BEGIN, EXPERTS + 1}, E(ROUTED_IN)}},
        {OPERATION_swiglu_backward, .shape = swiglu,
         .operands = {E(2 * ROUTED_IN), E(ROUTED_IN), {BEGIN, EXPERTS + 1}, E(2 * ROUTED_IN)}},
        {OPERATION_choose_copies, .copies = true, .operands = {{TOKEN, NUMBERS}, {TOKEN, NUMBERS}}},
        {OPERATION_counts_post, .posts = true,
         .operands = {{BEGIN, EXPERTS + 1}, {TOKEN, EXPERTS}, {TOKEN, EXPERTS}}},
        {OPERATION_counts_wait, .waits = true,
         .operands = {{TOKEN, EXPERTS}, {TOKEN, EXPERTS}, {BEGIN, EXPERTS + 1}}},
        {OPERATION_rows_post, .posts = true,
         .operands = {E(ROUTED_IN), {BEGIN, EXPERTS + 1}, {BEGIN, EXPERTS + 1}, E(ROUTED_IN)}},
        {OPERATION_rows_wait, .waits = true, .operands = {E(ROUTED_IN), E(ROUTED_IN)}},
    };
    memcpy(subjects, all, sizeof all);
}
/* clang-format on */

/* An all-to-all with a second member that has the same pieces. So this member gets back its own pieces, cut off or
   filled up with zeros to the size that it expects. */
static Status mirror(void *context, AllToAll *all_to_all, Error *unused)
{
    (void)context, (void)unused;
    const size_t *out = all_to_all->send_begins, *in = all_to_all->receive_begins;
    memset(all_to_all->receive, 0, in[2]);
    for (int m = 0; m < 2; m++) {
        const size_t sent = out[m + 1] - out[m], room = in[m + 1] - in[m];
        memcpy((char *)all_to_all->receive + in[m], (const char *)all_to_all->send + out[m], sent < room ? sent : room);
    }
    return STATUS_OK;
}

static const ExpertGroup mirrors = {.members = 2, .post = mirror, .wait = mirror};

/* An operation on a device, with its operands. */
typedef struct Trial {
    const Subject *subject;
    Device *device;
    Op op;
    OpMemory memory;
    size_t bytes[OPERATION_OPERANDS];
    unsigned char *first[OPERATION_OPERANDS]; /* [operand]: its content after the first run */
} Trial;

static size_t size_of(const Trial *trial, Form form)
{
    return form == ELEMENT ? trial->device->run->size[COMPUTE_TYPE] : form == LOSS ? sizeof(double) : sizeof(float);
}

/* The first row of an expert. With seed 1 every expert has two rows, so the first ROUTED / 2 experts have all rows.
   With seed 2 every expert has one row, and the last expert has the rest. */
static int32_t begin_of(uint64_t seed, size_t expert)
{
    const size_t begin = expert * (3 - (size_t)seed);
    return expert == EXPERTS || begin > ROUTED ? ROUTED : (int32_t)begin;
}

/* Fills an operand with random numbers from 0.5 to 1.5, which are also valid statistics, or with valid tokens and
   rows. */
static void fill_operand(const Trial *trial, int operand, uint64_t seed)
{
    const Form form = trial->subject->operands[operand].form;
    const size_t count = trial->bytes[operand] / size_of(trial, form);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = random_bits(seed * 100 + (uint64_t)operand, i);
        const float number = 0.5f + (float)(bits % 1000) / 1000;
        char *const place = (char *)trial->memory.operands[operand] + i * size_of(trial, form);
        if (form == TOKEN)
            *(int32_t *)(void *)place = (int32_t)(bits % TABLE_ROWS);
        else if (form == PLACE)
            *(int32_t *)(void *)place = (int32_t)((5 * i + seed) % ROUTED);
        else if (form == BEGIN)
            *(int32_t *)(void *)place = begin_of(seed, i);
        else if (form == LOSS)
            *(double *)(void *)place = (double)number;
        else if (form == FLOAT)
            *(float *)(void *)place = number;
        else
            OK(trial->device->run->load_floats(trial->device, COMPUTE_TYPE, 1, &number, place, &error));
    }
}

static void begin_exchange(Trial *trial)
{
    GroupExchange *exchange = group_make_exchange(&(GroupExchange){
        .group = &mirrors,
        .experts = EXPERTS,
        .row_bytes = COLUMNS * trial->device->run->size[COMPUTE_TYPE],
        .room = EXPERTS * TABLE_ROWS,
    });
    assert_non_null(exchange);
    trial->op.exchange = exchange;
    if (!trial->subject->waits)
        return;
    exchange->posted.send = trial->memory.operands[0];
    exchange->posted.receive = trial->memory.operands[1];
    exchange->begins[1] = exchange->begins[4] = trial->bytes[0] / 2;
    exchange->begins[2] = exchange->begins[5] = trial->bytes[0];
}

/* Runs the operation. Operand `changed` has other content than in the first run, all others have the same; -1: all have
   the same. */
static void run_trial(const Trial *trial, int changed)
{
    for (int i = 0; i < OPERATION_OPERANDS && trial->bytes[i]; i++)
        fill_operand(trial, i, i == changed ? 2 : 1);
    OK(op_run_one(trial->device, &trial->op, &trial->memory, &error));
}

static bool is_as_first(const Trial *trial, int operand)
{
    return memcmp(trial->memory.operands[operand], trial->first[operand], trial->bytes[operand]) == 0;
}

static bool others_are_as_first(const Trial *trial, int but)
{
    for (int i = 0; i < OPERATION_OPERANDS && trial->bytes[i]; i++)
        if (i != but && !is_as_first(trial, i))
            return false;
    return true;
}

static void begin_trial(Trial *trial, const Subject *subject, Device *device)
{
    *trial = (Trial){.subject = subject, .device = device, .op = {.kind = subject->kind, .scale = 0.5}};
    if (subject->shape.rows)
        OK(device_kernel(device, &subject->shape, &trial->op.kernel, &error));
    if (subject->gelu.rows)
        OK(device_kernel(device, &subject->gelu, &trial->op.gelu, &error));
    trial->op.count = NUMBERS * (subject->in_bytes ? device->run->size[COMPUTE_TYPE] : 1);
    if (subject->table)
        trial->op.rows = ROWS, trial->op.columns = COLUMNS, trial->op.sequence = SEQUENCE;
    for (int i = 0; i < OPERATION_OPERANDS && subject->operands[i].form; i++) {
        const int count = subject->operands[i].count;
        trial->bytes[i] =
            (count == CONTEXT ? trial->op.kernel->context : (size_t)count) * size_of(trial, subject->operands[i].form);
        OK(device->run->allocate(device, trial->bytes[i], &trial->memory.operands[i], &error));
        trial->first[i] = malloc(trial->bytes[i]);
        assert_non_null(trial->first[i]);
    }
    if (subject->posts || subject->waits)
        begin_exchange(trial);
    if (subject->copies)
        trial->op.copies = group_make_copies(EXPERTS, 2 * EXPERTS, 1);
    assert_true(!subject->copies || trial->op.copies);
    run_trial(trial, -1);
    for (int i = 0; i < OPERATION_OPERANDS && trial->bytes[i]; i++)
        memcpy(trial->first[i], trial->memory.operands[i], trial->bytes[i]);
}

static void end_trial(Trial *trial)
{
    free(trial->op.exchange);
    free(trial->op.copies);
    for (int i = 0; i < OPERATION_OPERANDS && trial->bytes[i]; i++) {
        trial->device->run->deallocate(trial->device, trial->memory.operands[i]);
        free(trial->first[i]);
    }
}

/* Checks that what happens to the operand fits its declared effect. False: the operation only reads the operand, and
   its content does not affect the result. */
static bool check_operand(const Trial *trial, int operand)
{
    const OpOperand *said = &op_info[trial->op.kind].operands[operand];
    const char *const name = op_info[trial->op.kind].name;
    void *const untouched = malloc(trial->bytes[operand]);
    assert_non_null(untouched);
    fill_operand(trial, operand, 2);
    memcpy(untouched, trial->memory.operands[operand], trial->bytes[operand]);
    run_trial(trial, operand);
    const bool written = memcmp(untouched, trial->memory.operands[operand], trial->bytes[operand]) != 0;
    const bool same = is_as_first(trial, operand), others = others_are_as_first(trial, operand);
    free(untouched);
    switch (said->effect) {
    case EFFECT_READ:
    case EFFECT_MAY_READ:
        if (written)
            fail_msg("%s writes %s", name, said->name);
        return !others;
    case EFFECT_WRITE:
    case EFFECT_IF_WANTED:
        if (!written || !same || !others)
            fail_msg("%s does not only write %s", name, said->name);
        return true;
    case EFFECT_ADD:
    case EFFECT_MAY_ADD:
        if (!written || same || !others)
            fail_msg("%s does not only add to %s", name, said->name);
        return true;
    case EFFECT_CHANGE:
        if (!written || same || others)
            fail_msg("%s does not change %s", name, said->name);
        return true;
    case EFFECT_NONE: break;
    }
    fail_msg("%s has no operand %d", name, operand);
    return false;
}

TEST(effects_are_as_said)
{
    Subject subjects[OPERATION_KINDS];
    subjects_of(subjects);
    for (int k = 0; k < OPERATION_KINDS; k++) {
        bool matters[OPERATION_OPERANDS] = {false};
        assert_int_equal(subjects[k].kind, k);
        for (int d = 0; d < DEVICES; d++) {
            Trial trial;
            begin_trial(&trial, &subjects[k], devices[d]);
            for (int i = 0; i < OPERATION_OPERANDS && op_info[k].operands[i].effect; i++)
                matters[i] |= check_operand(&trial, i);
            end_trial(&trial);
        }
        for (int i = 0; i < OPERATION_OPERANDS && op_info[k].operands[i].effect; i++)
            if (!matters[i])
                fail_msg("%s does not read %s", op_info[k].name, op_info[k].operands[i].name);
    }
}

static Status no_answer(void *context, AllToAll *all_to_all, Error *problem)
{
    (void)context, (void)all_to_all;
    return error_set(problem, STATUS_RUN_FAILED, "no answer");
}

/* The longest name of an all-to-all is whole in a message. */
TEST(failures_name_the_exchange)
{
    const ExpertGroup silent = {.members = 2, .post = no_answer, .wait = no_answer};
    GroupExchange *exchange = group_make_exchange(&(GroupExchange){
        .group = &silent, .what = "the gradient's dispatch from combine", .experts = EXPERTS, .flight.layer = 1200});
    const Op op = {.kind = OPERATION_rows_wait, .exchange = exchange};
    float rows[2];
    const OpMemory memory = {.operands = {&rows[0], &rows[1]}};
    Error error;
    assert_int_equal(op_run_one(devices[0], &op, &memory, &error), STATUS_RUN_FAILED);
    assert_string_equal(error.text, "the gradient's dispatch from combine of layer 1200: no answer");
    free(exchange);
}

int main(void) { return test_program("effects", open_cpu_and_oracle, close_pair); }
