#include "compiler/tree/parse.h"

static void dump_expression(const Expression *expression, FILE *stream)
{
    switch (expression->kind) {
    case EXPRESSION_NUMBER: fprintf(stream, "%lld", (long long)expression->number); return;
    case EXPRESSION_NAME: fputs(expression->symbol->text, stream); return;
    default: break;
    }
    const bool is_call = expression->kind == EXPRESSION_CALL;
    fprintf(stream, "(%s", is_call ? expression->symbol->text : expression_text(expression->kind));
    for (const Expression *operand = expression->operands; operand; operand = operand->next) {
        putc(' ', stream);
        dump_expression(operand, stream);
    }
    putc(')', stream);
}

static void dump_field(const char *name, const Expression *expression, FILE *stream)
{
    if (!expression)
        return;
    fprintf(stream, " %s ", name);
    dump_expression(expression, stream);
}

static void dump_step(const Item *item, FILE *stream)
{
    fputs("step", stream);
    dump_field("at", item->step.slot, stream);
    for (const Pass *pass = item->step.passes; pass; pass = pass->next) {
        fprintf(stream, " %c", action_letter((uint8_t)pass->kind));
        if (pass->chunk != NO_CHUNK)
            fprintf(stream, "%d", pass->chunk);
        if (pass->computed_chunk) {
            putc('{', stream);
            dump_expression(pass->computed_chunk, stream);
            putc('}', stream);
        }
        if (pass->microbatch) {
            putc('[', stream);
            dump_expression(pass->microbatch, stream);
            putc(']', stream);
        }
        if (pass->joined)
            fputs(" &", stream);
    }
    dump_field(":", item->value, stream);
    if (item->step.overlap)
        fputs(" overlap", stream);
    dump_field("from", item->step.overlap_from, stream);
    dump_field("split from", item->step.split_from, stream);
}

static void dump_share(const WrittenShare *share, FILE *stream)
{
    dump_field("on", share->part, stream);
    dump_field("of", share->whole, stream);
}

static void dump_recipe(const Item *item, FILE *stream)
{
    const WrittenPair *pair = &item->recipe.pair;
    if (item_is_chunk_recipe(item))
        fprintf(stream, " F%d&%c%d", pair->chunks[0], pair->forward ? 'F' : 'B', pair->chunks[1]);
    else if (pair->forward)
        fputs(" F&F", stream);
    if (item->recipe.automatic) {
        fputs(" auto", stream);
        dump_share(&item->recipe.share, stream);
    }
    for (const WrittenStream *written = item->recipe.streams; written; written = written->next) {
        fprintf(stream, " %s", written->name.symbol->text);
        for (const WrittenEntry *entry = written->entries; entry; entry = entry->next)
            if (entry->half == NO_HALF)
                fprintf(stream, " %s(%c)", entry->component.symbol->text, action_letter((uint8_t)entry->pass));
            else
                fprintf(stream, " %s(%lld)", entry->component.symbol->text, (long long)entry->half);
        dump_share(&written->share, stream);
    }
}

static void dump_items(const Item *items, int indent, FILE *stream)
{
    static const char *const names[] = {"ranks",      "microbatches", "param",   "let",  "require", "pipe", "chunk",
                                        "order auto", "squeeze",      "overlap", "step", "repeat",  "if"};
    for (const Item *item = items; item; item = item->next) {
        fprintf(stream, "%*s", indent, "");
        if (item->kind == ITEM_STEP) {
            dump_step(item, stream);
            putc('\n', stream);
            continue;
        }
        fputs(names[item->kind], stream);
        if (item->name.symbol)
            fprintf(stream, " %s", item->name.symbol->text);
        if (item->kind == ITEM_CHUNK)
            fprintf(stream, " %u", item->chunk);
        const bool is_equation = item->name.symbol || item->kind == ITEM_CHUNK;
        dump_field(item->kind == ITEM_REPEAT ? "<" : is_equation ? "=" : ":", item->value, stream);
        if (item->kind == ITEM_REQUIRE)
            fprintf(stream, " \"%s\"", item->message);
        if (item->kind == ITEM_PIPE) {
            dump_field("stages", item->pipe.stages, stream);
            fprintf(stream, " stage %s", item->pipe.stage.symbol->text);
            if (item->pipe.microbatch.symbol)
                fprintf(stream, " of %s", item->pipe.microbatch.symbol->text);
            dump_field("on", item->pipe.rank, stream);
            dump_field("microbatches", item->pipe.microbatches, stream);
            dump_field("of", item->pipe.written, stream);
            if (item->pipe.version)
                fprintf(stream, " microbatch %s", item->pipe.version_of.symbol->text);
            dump_field("on version", item->pipe.version, stream);
        }
        if (item->kind == ITEM_RECIPE)
            dump_recipe(item, stream);
        for (const WrittenSetting *setting = item->kind == ITEM_ORDER ? item->order.written : NULL; setting;
             setting = setting->next) {
            if (setting->value)
                dump_field(setting->name.symbol->text, setting->value, stream);
            else
                fputs(" overlap", stream);
        }
        putc('\n', stream);
        if (item->kind != ITEM_REPEAT && item->kind != ITEM_IF)
            continue;
        dump_items(item->block.body, indent + 2, stream);
        if (item->block.otherwise) {
            fprintf(stream, "%*selse\n", indent, "");
            dump_items(item->block.otherwise, indent + 2, stream);
        }
    }
}

void dump_tree(const Ast *ast, FILE *stream)
{
    fprintf(stream, "schedule %s\n", ast->schedule);
    dump_items(ast->items, 2, stream);
}
