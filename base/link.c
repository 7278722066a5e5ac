#include "base/link.h"

#include "base/settings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double most_seconds = 60;

static bool read_seconds(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    char *end;
    const double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != text && strcmp(end, units[i].name) == 0) {
            *seconds = number * units[i].seconds;
            return *seconds >= 0 && *seconds <= most_seconds;
        }
    return false;
}

static bool read_ranks(const char *text, LinkModel *link)
{
    int length = 0;
    return sscanf(text, "%d-%d%n", &link->first, &link->last, &length) == 2 && text[length] == '\0' &&
           link->first >= 0 && link->last > link->first;
}

static Status take(void *context, const char *key, const char *value, Error *error)
{
    static const char *const keys[] = {"latency", "bandwidth", "ranks"};
    LinkModel *link = context;
    if (strcmp(key, "latency") == 0)
        return read_seconds(value, &link->latency)
                   ? STATUS_OK
                   : error_set(error, STATUS_BAD_USAGE,
                               "latency = %s: it must be a time from 0 to %g s with its unit, such as 20us or 1.5ms",
                               value, most_seconds);
    if (strcmp(key, "bandwidth") == 0)
        return settings_bytes(value, &link->bandwidth) && link->bandwidth >= 1 && link->bandwidth <= 0x1p60
                   ? STATUS_OK
                   : error_set(error, STATUS_BAD_USAGE,
                               "bandwidth = %s: it must be from 1 to 2^60 bytes a second, such as 500M or 2G", value);
    if (strcmp(key, "ranks") == 0)
        return read_ranks(value, link) ? STATUS_OK
                                       : error_set(error, STATUS_BAD_USAGE,
                                                   "ranks = %s: it must be the numbers of two processes, the smaller "
                                                   "first, such as 0-3",
                                                   value);
    settings_unknown("setting", key, keys, sizeof *keys, sizeof keys / sizeof *keys, error);
    return STATUS_BAD_USAGE;
}

Status link_read(const char *text, LinkModel *link, Error *error)
{
    char setting[64];
    *link = (LinkModel){.given = true, .last = INT_MAX};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t length = strcspn(at, ",");
        if (length >= sizeof setting)
            return error_set(error, STATUS_BAD_USAGE, "'%.32s...' is longer than any setting", at);
        snprintf(setting, sizeof setting, "%.*s", (int)length, at);
        if (settings_assign(setting, take, link, error) != STATUS_OK)
            return STATUS_BAD_USAGE;
    }
    if (link->latency <= 0 && link->bandwidth <= 0)
        return error_set(error, STATUS_BAD_USAGE, "give a latency above 0, a bandwidth, or both");
    return STATUS_OK;
}
