#include "study/measured/kineto_map.h"

#include "base/text.h"
#include "base/file.h"
#include "base/names.h"
#include "base/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const use_suffixes[MAP_USES] = {"", ".first", ".kernel", ".stream", ".data"};

/* Whether the map may have lines with this subject and this use. */
static bool has_use(unsigned subject, MapUse use)
{
    if (subject == SUBJECT_COMM)
        return use == MAP_KERNEL || use == MAP_STREAM || use == MAP_DATA;
    return use == MAP_ANNOTATION || (subject < SUBJECT_PASS && (use == MAP_FIRST || use == MAP_KERNEL));
}

static bool is_subject(unsigned subject)
{
    return subject >= SUBJECT_PASS || subject_entry(subject).pass != RECIPE_W ||
           !recipe_communicates[subject_entry(subject).component];
}

typedef struct MapKey {
    char text[48];
    uint8_t subject, use;
} MapKey;

enum { KEYS_MAX = SUBJECTS * MAP_USES };

typedef struct MapReading {
    KinetoMap *map;
    Arena *arena;
    MapKey keys[KEYS_MAX];
    size_t key_count;
} MapReading;

static void name_key(MapKey *key)
{
    const char *suffix = use_suffixes[key->use];
    if (key->subject < SUBJECT_PASS) {
        const RecipeEntry entry = subject_entry(key->subject);
        snprintf(key->text, sizeof key->text, "%s.%c%s", part_names[entry.component], part_pass_letters[entry.pass],
                 suffix);
    } else {
        snprintf(key->text, sizeof key->text, "%s%s",
                 key->subject == SUBJECT_COMM ? "comm"
                 : key->subject == SUBJECT_FB ? "FB"
                                              : action_names[key->subject - SUBJECT_PASS],
                 suffix);
    }
}

static void list_keys(MapReading *reading)
{
    for (uint8_t subject = 0; subject < SUBJECTS; subject++)
        for (uint8_t use = 0; use < MAP_USES; use++)
            if (is_subject(subject) && has_use(subject, use)) {
                MapKey *key = &reading->keys[reading->key_count++];
                *key = (MapKey){.subject = subject, .use = use};
                name_key(key);
            }
}

static void append(MapReading *reading, const MapKey *key, const char *pattern)
{
    KinetoMap *map = reading->map;
    map->rules = arena_extend(reading->arena, map->rules, map->count, sizeof *map->rules);
    map->rules[map->count++] = (MapRule){key->subject, key->use, arena_text(reading->arena, pattern, strlen(pattern))};
}

static Status take(void *context, const char *written, const char *pattern, Error *error)
{
    MapReading *reading = context;
    NearestWord nearest = nearest_to(written);
    if (!*pattern)
        return error_set(error, STATUS_BAD_INPUT, "%s: a pattern is missing after the =", written);
    for (size_t i = 0; i < reading->key_count; i++) {
        nearest_consider(&nearest, reading->keys[i].text);
        if (strcmp(reading->keys[i].text, written) == 0) {
            append(reading, &reading->keys[i], pattern);
            return STATUS_OK;
        }
    }
    if (nearest.word)
        return error_set(error, STATUS_BAD_INPUT, "no key '%s'; did you mean %s?", written, nearest.word);
    return error_set(error, STATUS_BAD_INPUT,
                     "no key '%s'; there are components (attention.F, dispatch.B, mlp.W, ...), alone or with .first "
                     "or .kernel, passes (F, B, I, W, U, FB), comm.stream, comm.kernel and comm.data",
                     written);
}

Status kineto_map_read(const char *path, Arena *arena, KinetoMap *map, Error *error)
{
    MapReading *reading = arena_allocate(arena, sizeof *reading);
    char *text;
    size_t size;
    *map = (KinetoMap){.path = text_printable(path, arena)};
    reading->map = map;
    reading->arena = arena;
    list_keys(reading);
    TRY(file_read(path, arena, &text, &size, error));
    TRY(settings_take(path, text, size, take, reading, error));
    if (!map->count)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: the map is empty; it needs lines such as attention.F = PATTERN OF NAMES", path);
    return STATUS_OK;
}

bool kineto_map_has_components(const KinetoMap *map)
{
    for (size_t i = 0; i < map->count; i++)
        if (map->rules[i].subject < SUBJECT_PASS)
            return true;
    return false;
}

/* Matches {stage} or {microbatch} at *pattern with the digits at *text, and moves both pointers after what matched.
   False: there is no such placeholder, or no digit. */
static bool match_number(const char **pattern, const char **text, MapNumbers *numbers)
{
    static const char stage[] = "{stage}", microbatch[] = "{microbatch}";
    const bool is_stage = strncmp(*pattern, stage, sizeof stage - 1) == 0;
    if (!is_stage && strncmp(*pattern, microbatch, sizeof microbatch - 1) != 0)
        return false;
    int64_t number = 0;
    const char *digit = *text;
    for (; isdigit((unsigned char)*digit) && digit - *text < 9; digit++)
        number = 10 * number + (*digit - '0');
    if (digit == *text)
        return false;
    *(is_stage ? &numbers->stage : &numbers->microbatch) = number;
    *pattern += is_stage ? sizeof stage - 1 : sizeof microbatch - 1;
    *text = digit;
    return true;
}

bool kineto_map_matches(const char *pattern, const char *text, MapNumbers *numbers)
{
    MapNumbers found = {-1, -1};
    /* star: the rest of the pattern after its last *; tried: end of the text that this * matches so far */
    const char *star = NULL, *tried = text;
    while (*text || *pattern) {
        if (*pattern == '*') {
            star = ++pattern;
            tried = text;
        } else if (*text && *pattern == '{' && match_number(&pattern, &text, &found)) {
            ;
        } else if (*text && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star && *tried) {
            pattern = star;
            text = ++tried;
        } else {
            return false;
        }
    }
    if (numbers)
        *numbers = found;
    return true;
}

const MapRule *kineto_map_find(const KinetoMap *map, MapUse use, const char *text, MapNumbers *numbers)
{
    for (size_t i = 0; i < map->count; i++)
        if (map->rules[i].use == use && kineto_map_matches(map->rules[i].pattern, text, numbers))
            return &map->rules[i];
    return NULL;
}
