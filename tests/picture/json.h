#pragma once

/* Reads JSON in place: a value is a pointer to its start in the text. The functions fail the test at most mistakes in
   the part of the JSON that they read. */

#include "tests/picture/run.h"

static inline const char *json_blank(const char *text) { return text + strspn(text, " \t\r\n"); }

static inline const char *json_text_end(const char *text)
{
    assert_int_equal(*text, '"');
    for (text++; *text != '"'; text++) {
        assert_true((unsigned char)*text >= 0x20);
        if (*text == '\\') {
            assert_non_null(strchr("\"\\/bfnrtu", *++text));
            assert_int_not_equal(*text, '\0');
        }
    }
    return text + 1;
}

/* Returns the position after the value that begins at `text`. */
static inline const char *json_skip(const char *text)
{
    text = json_blank(text);
    if (*text == '"')
        return json_text_end(text);
    if (*text == '{' || *text == '[') {
        const bool object = *text == '{';
        const char close = object ? '}' : ']';
        text = json_blank(text + 1);
        if (*text == close)
            return text + 1;
        for (;; text++) {
            if (object) {
                text = json_blank(json_text_end(json_blank(text)));
                assert_int_equal(*text, ':');
                text++;
            }
            text = json_blank(json_skip(text));
            if (*text == close)
                return text + 1;
            assert_int_equal(*text, ',');
        }
    }
    if (strncmp(text, "true", 4) == 0 || strncmp(text, "null", 4) == 0)
        return text + 4;
    if (strncmp(text, "false", 5) == 0)
        return text + 5;
    const size_t length = strspn(text, "+-.0123456789eE");
    assert_true(length > 0 && (*text == '-' || (*text >= '0' && *text <= '9')));
    char *end;
    (void)strtod(text, &end);
    assert_ptr_equal(end, text + length);
    return end;
}

/* Returns the element of an array after `element`; the first if `element` is NULL. NULL: there is none. */
static inline const char *json_next(const char *array, const char *element)
{
    const char *text = json_blank(element ? json_skip(element) : array);
    if (!element)
        assert_int_equal(*text, '[');
    if (*text == ']')
        return NULL;
    text = json_blank(text + 1);
    return *text == ']' ? NULL : text;
}

/* The value of a member; NULL: the object does not have it. */
static inline const char *json_member(const char *object, const char *name)
{
    const char *text = json_blank(object);
    assert_int_equal(*text, '{');
    for (text = json_blank(text + 1); *text != '}'; text = json_blank(text)) {
        const char *key = text, *value = json_blank(json_blank(json_text_end(text)) + 1);
        if (strncmp(key + 1, name, strlen(name)) == 0 && key[1 + strlen(name)] == '"')
            return value;
        text = json_blank(json_skip(value));
        text += *text == ',';
    }
    return NULL;
}

static inline double json_number(const char *object, const char *name)
{
    const char *value = json_member(object, name);
    assert_non_null(value);
    char *end;
    const double number = strtod(value, &end);
    assert_true(end > value);
    return number;
}

/* Copies a member that is a string, as it is written, without quotes. */
static inline void json_text(const char *object, const char *name, char *text, size_t size)
{
    const char *value = json_member(object, name);
    assert_non_null(value);
    const char *end = json_text_end(value);
    assert_true((size_t)(end - value) - 2 < size);
    snprintf(text, size, "%.*s", (int)(end - value) - 2, value + 1);
}
