#pragma once

/* A plug-in is a shared object with the part of dprun that needs a library which not every machine has. It is in the
   folder of the executable dprun, or in ../lib/dprun relative to that folder, and uses functions of dprun. dprun takes
   tables of functions from it, each by the name of the variable. */

#include "base/status.h"
#include "base/version.h"

typedef struct Plugin {
    const char *file;
    const char *without; /* what a build without it lacks, and what to do about it */
    const char *unless;  /* the question that follows the words of dlopen if it does not load the file */
} Plugin;

extern const Plugin plugin_mpi, plugin_cuda;

/* The number after the project's version counts the changes of the tables that dprun takes from plug-ins. */
#define PLUGIN_VERSION PROJECT_VERSION ", interface 1"
/* Every plug-in has this line in one of its files. The version is a function because a process may load several
   plug-ins: AddressSanitizer takes variables of one name in two libraries for one variable. */
#define DEFINE_PLUGIN                   \
    const char *plugin_interface(void); \
    const char *plugin_interface(void) { return PLUGIN_VERSION; }

/* Finds a table of the plug-in; the first call loads the file. A table in the program itself, as tests have, comes
   first. STATUS_RUN_FAILED: there is no file, it cannot be loaded, or its version is another one. */
Status plugin_table(const Plugin *plugin, const char *table, const void **found, Error *error);
